from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.diagrams import Network

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


@pytest.mark.slow
def test_a_causal_mask_may_have_other_views_between_it_and_the_softmax(
    assert_reads: Check,
) -> None:
    assert_reads(Run(causal), (2, 4, 4))
    assert_reads(Run(lambda x: causal(x.reshape(2, 2, 3, 4)[:, :, :, :3])), (4, 3, 4))
    fill = torch.ones(1, 4, 4, dtype=torch.bool).triu(1)
    assert_reads(
        Run(lambda x: (x * 0.5).masked_fill(fill, -torch.inf).transpose(1, 2).softmax(1)), (2, 4, 4)
    )


def causal_scores(x: Tensor) -> Tensor:
    fill = torch.ones(3, 3, dtype=torch.bool).triu(1)
    return (x @ x.mT).masked_fill(fill, -torch.inf)
