from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams import Network, Sum
from rankscope.reading import from_module

Check = Callable[..., Network]
Program = Callable[..., Tensor]


class Run(nn.Module):
    """A module that runs one function of two tensors."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.program(x, y)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: x + y,
        lambda x, y: 3 * x - y / 4,
        lambda x, y: 1.5 - x + y,
        lambda x, y: torch.add(x, y, alpha=3) - torch.sub(x, 2, alpha=2),
        lambda x, y: -(x * y) * 2,
        lambda x, y: x[:, :1] * y + x[0] - y.mean((0, 2), keepdim=True),
        lambda x, y: x**3 + y.square() + y.pow(1.0),
        lambda x, y: (x * 2).softmax(-1) + torch.relu(-y),
        lambda x, y: x.sum(1) + y.mean() + x.sum((0, 1), keepdim=True)[0],
        lambda x, y: torch.relu(x).sum(-1).sum() * y,
        lambda x, y: x.mean(-1, keepdim=True) + torch.mean(y, dim=[1, 2], keepdim=True),
        lambda x, y: sum([x, y, x]),
        lambda x, y: x.clone().mul_(2).add_(y),
    ],
)
def test_sums_and_products_equal_those_of_pytorch(program: Program, assert_reads: Check) -> None:
    assert_reads(Run(program), (2, 3, 4), (2, 3, 4))


@pytest.mark.parametrize(
    ("program", "first", "second"),
    [
        (lambda x, y: x @ y, (2, 3), (3, 4)),
        (lambda x, y: x @ y, (3,), (3,)),
        (lambda x, y: x @ y, (3,), (2, 3, 4)),
        (lambda x, y: x @ y, (5, 2, 3), (3,)),
        (lambda x, y: torch.matmul(x, y), (5, 1, 2, 3), (4, 3, 2)),
        (lambda x, y: torch.bmm(x, y), (5, 2, 3), (5, 3, 2)),
        (lambda x, y: x @ y.transpose(-2, -1), (2, 3, 4), (2, 5, 4)),
        (lambda x, y: (x @ y).softmax(-1) @ y.mT, (2, 3, 4), (2, 4, 5)),
        (lambda x, y: torch.einsum("bnf,bmf->bnm", x, y), (2, 3, 4), (2, 5, 4)),
        (lambda x, y: torch.einsum("b n f, b m f", x, y), (2, 3, 4), (2, 5, 4)),
        (lambda x, y: torch.einsum("...f,gf->g...", [x, y]), (2, 3, 4), (5, 4)),
        (lambda x, y: torch.einsum("ii,j->ij", x, y), (3, 3), (4,)),
        (lambda x, y: torch.einsum("a...,...->...", x, y), (2, 3, 4), (4,)),
    ],
)
def test_matrix_products_and_einsums_equal_those_of_pytorch(
    program: Program, first: tuple[int, ...], second: tuple[int, ...], assert_reads: Check
) -> None:
    assert_reads(Run(program), first, second)


def test_a_number_in_front_becomes_a_coefficient() -> None:
    (step,) = from_module(Run(lambda x, y: x - 0.5 * y), ((3,), (3,))).steps
    assert isinstance(step.body, Sum)
    assert [term.coefficient for term in step.body.terms] == [1.0, -0.5]
