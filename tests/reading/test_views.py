from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.diagrams.network import Network
from rankscope.errors import SizeError, UnsupportedModuleError
from rankscope.reading import from_module

Check = Callable[..., Network]
Program = Callable[[Tensor], Tensor]


class Run(nn.Module):
    """A module that runs one function of a tensor."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: Tensor) -> Tensor:
        return self.program(x)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.view(2, -1, 2).transpose(0, 2),
        lambda x: x.permute(2, 0, 1).reshape(8, 3),
        lambda x: torch.permute(x, (1, -1, 0)).reshape((4, 6)),
        lambda x: x.transpose(1, 2).flatten(1).relu(),
        lambda x: torch.flatten(x, 0, 1).T @ torch.flatten(x, 0, 1),
        lambda x: x[0].t() + x[1].mT,
        lambda x: x.unsqueeze(1).squeeze(1) + x[:, None].squeeze((0, 1))[:, :1],
        lambda x: x[:, :1].squeeze().unsqueeze(-2),
        lambda x: x.mean(1, keepdim=True).expand(-1, 5, -1) * x.sum(1).expand(3, 2, 4)[:2, :1],
        lambda x: x[0, 1] * x[..., -1, :] + x[-1, None, 2],
        lambda x: x[:, 1:3, ::1].narrow(2, 1, 2) + x.select(1, 0)[:, None, 2:],
        lambda x: x.chunk(2, dim=-1)[1] * x.split([1, 2, 1], -1)[1],
        lambda x: x.split(3, dim=2)[1] + sum(x.unbind(-1))[..., None],
        lambda x: sum(row * n for n, row in enumerate(x, 1)),
        lambda x: x.contiguous().detach().to(torch.float64).clone(),
        lambda x: x.swapaxes(0, 1)[: x.size(0)] * len(x) + x.dim() + x.numel() + x.ndim,
        lambda x: x.expand(3, 2, 3, 4)[1:, 0].sum(0),
        lambda x: x.sum(1)[:, None].expand(2, 6, 4).reshape(2, 2, 3, 4).softmax(2),
        lambda x: x.sum(1)[:, None].expand(2, 6, 4).sum(1),
        lambda x: x[None, :, None].squeeze() + x[None, :, None].squeeze((0, 2)),
        lambda x: x.unsqueeze(1).softmax(1) + F.layer_norm(x.unsqueeze(3), (1,))[..., 0][:, None],
    ],
)
def test_views_equal_those_of_pytorch(program: Program, assert_reads: Check) -> None:
    assert_reads(Run(program), (2, 3, 4))


def causal(x: Tensor) -> Tensor:
    mask = torch.ones(x.shape[-2:]).tril()
    return x.masked_fill(mask == 0, -float("inf")).softmax(-1)


def test_a_causal_mask_may_have_other_views_between_it_and_the_softmax(
    assert_reads: Check,
) -> None:
    assert_reads(Run(causal), (2, 4, 4))
    assert_reads(Run(lambda x: causal(x.reshape(2, 2, 3, 4)[:, :, :, :3])), (4, 3, 4))
    fill = torch.ones(1, 4, 4, dtype=torch.bool).triu(1)
    assert_reads(
        Run(lambda x: (x * 0.5).masked_fill(fill, -torch.inf).transpose(1, 2).softmax(1)), (2, 4, 4)
    )


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda x: x.view(torch.int64), "a view as another dtype is not a contraction"),
        (lambda x: x.T, r"`T` is for matrices, got an input of shape \(2, 3, 4\)"),
        (lambda x: x[True], "an index by booleans is not a contraction"),
        (lambda x: x[:, ::2], r"the slice slice\(None, None, 2\) is not a run of positions"),
        (lambda x: x[:, 2:2], r"the slice slice\(2, 2, None\) is not a run of positions"),
        (lambda x: x[:, torch.tensor([0, 2])], "an index by a tensor is not a contraction"),
        (lambda x: x[x], "an index by a tensor is not a contraction"),
        (lambda x: x.masked_fill(torch.ones(3, 4).bool(), 0.0), "only when it fills in minus inf"),
        (lambda x: x.masked_fill(x, -torch.inf), "must be a fixed tensor over the last two axes"),
        (lambda x: x.masked_fill(torch.eye(3, 4).bool(), -torch.inf), "only when it is the causal"),
        (lambda x: causal_scores(x).view(2, 9).softmax(-1), "must be followed by a function such"),
        (lambda x: (-causal_scores(x)).softmax(-1), "times -1.0, which turns its minus infinities"),
    ],
)
def test_what_is_no_view_is_refused(program: Program, message: str) -> None:
    with pytest.raises(UnsupportedModuleError, match=message):
        from_module(Run(program), (2, 3, 4))


def causal_scores(x: Tensor) -> Tensor:
    fill = torch.ones(3, 3, dtype=torch.bool).triu(1)
    return (x @ x.mT).masked_fill(fill, -torch.inf)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda x: x.permute(0, 0, 1), r"the order \[0, 0, 1\] is not one of the 3 axes"),
        (lambda x: x.expand(2, 5, 4), r"axis 1 .* of shape \(2, 3, 4\) cannot be expanded to 5"),
        (lambda x: x.split([1, 1], 1)[0], r"sizes \[1, 1\] do not add up to 3, the size of axis 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(program: Program, message: str) -> None:
    with pytest.raises(SizeError, match=message):
        from_module(Run(program), (2, 3, 4))
