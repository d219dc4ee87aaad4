from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.diagrams import Network, diagrams_of
from rankscope.reading import from_module

Check = Callable[..., Network]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.LayerNorm(4), (4,)),
        (nn.LayerNorm((3, 4), eps=0.1), (2, 3, 4)),
        (nn.LayerNorm(4, bias=False), (2, 3, 4)),
        (nn.LayerNorm(4, elementwise_affine=False), (2, 4)),
        (nn.RMSNorm(4), (2, 3, 4)),
        (nn.RMSNorm((3, 4), eps=0.1), (2, 3, 4)),
        (nn.RMSNorm(4, elementwise_affine=False, eps=0.1), (3, 4)),
        (nn.GroupNorm(2, 6), (2, 6, 3, 4)),
        (nn.GroupNorm(3, 6, affine=False, eps=0.1), (2, 6)),
        (nn.InstanceNorm1d(6), (2, 6, 4)),
        (nn.InstanceNorm1d(6, affine=True, eps=0.1), (6, 4)),
        (nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 5)),
        (nn.InstanceNorm3d(2, affine=True), (2, 2, 3, 4, 2)),
        (nn.BatchNorm1d(3), (4, 3)),
        (nn.BatchNorm1d(3, affine=False, eps=0.1), (4, 3, 5)),
        (nn.BatchNorm2d(3), (2, 3, 4, 5)),
        (nn.BatchNorm3d(3), (2, 3, 4, 2, 3)),
    ],
    ids=str,
)
def test_a_normalization_equals_that_of_pytorch(
    layer: nn.Module, shape: tuple[int, ...], assert_reads: Check
) -> None:
    assert_reads(layer, shape)


@pytest.mark.slow
def test_a_root_mean_square_without_eps_takes_the_precision_of_its_weight() -> None:
    for kind in (torch.float32, torch.float64):
        (diagram,) = diagrams_of(from_module(nn.RMSNorm(4, dtype=kind), (4,)))
        assert diagram.regions[0].function.option("eps") == torch.finfo(kind).eps
    (diagram,) = diagrams_of(from_module(nn.RMSNorm(4, elementwise_affine=False), (4,)))
    assert diagram.regions[0].function.option("eps") == torch.finfo(torch.float32).eps


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (4,), self.scale, eps=0.1)


def test_the_function_layer_norm_is_read(assert_reads: Check) -> None:
    assert_reads(Functional(), (3, 4))


class Wrong(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (4,), 3.0)  # type: ignore[arg-type]
