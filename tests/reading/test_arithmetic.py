from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams.network import Network, Sum
from rankscope.errors import SizeError, UnsupportedModuleError
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
    (step,) = from_module(Run(lambda x, y: x - 0.5 * y), (3,), (3,)).steps
    assert isinstance(step.body, Sum)
    assert [term.coefficient for term in step.body.terms] == [1.0, -0.5]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda x, y: x / y, r"\(div\): a division by a tensor is not a contraction"),
        (lambda x, y: x / 0, "a division by zero has no value"),
        (lambda x, y: torch.div(x, 2, rounding_mode="floor"), "a division that rounds"),
        (lambda x, y: x**0.5, "the power 0.5 is not a product; it must be an integer from 1 to 8"),
        (lambda x, y: x**9, "the power 9 is not a product"),
        (lambda x, y: x**y, "the power .* is not a product"),
        (lambda x, y: x.sum(1, dtype=torch.float32), "its argument 'dtype' is not supported"),
        (lambda x, y: torch.einsum(x, [0, 1], y, [1, 2]), "only when it is written as a string"),
    ],
)
def test_what_is_no_contraction_is_refused(program: Program, message: str) -> None:
    with pytest.raises(UnsupportedModuleError, match=message):
        from_module(Run(program), (2, 2), (2, 2))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda x, y: x + y, r"add: Axis '1' has two sizes: 3 in 'X' and 4 in 'X'"),
        (lambda x, y: x @ y, "matmul: Axis 'sum' has two sizes: 3 in 'X' and 2 in 'X2'"),
        (lambda x, y: x @ y.sum((0, 1)), "a matrix product needs axes on both sides"),
        (lambda x, y: torch.einsum("ij,jk,k->i", x, y), "has 3 operands, got 2"),
        (lambda x, y: torch.einsum("ij,k->i", x, y), "the einsum term 'k' does not fit 2 axes"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(program: Program, message: str) -> None:
    with pytest.raises(SizeError, match=message):
        from_module(Run(program), (2, 3), (2, 4))


def test_a_summed_axis_of_size_one_is_not_broadcast() -> None:
    with pytest.raises(SizeError, match="two sizes: 1 in 'X' and 4 in 'X2'"):
        from_module(Run(lambda x, y: x @ y), (2, 1), (4, 3))
