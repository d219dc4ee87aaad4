from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.diagrams.module import module_arrays
from rankscope.diagrams.network import Network, diagrams_of
from rankscope.errors import SizeError, UnsupportedModuleError
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


def test_a_root_mean_square_without_eps_takes_the_precision_of_its_weight() -> None:
    for kind in (torch.float32, torch.float64):
        (diagram,) = diagrams_of(from_module(nn.RMSNorm(4, dtype=kind), (4,)))
        assert diagram.regions[0].function.option("eps") == torch.finfo(kind).eps
    (diagram,) = diagrams_of(from_module(nn.RMSNorm(4, elementwise_affine=False), (4,)))
    assert diagram.regions[0].function.option("eps") == torch.finfo(torch.float32).eps


def test_the_running_statistics_of_a_batch_normalization_are_folded() -> None:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias is x * scale + shift."""
    layer = nn.BatchNorm1d(2, eps=0.0).double().eval()
    with torch.no_grad():
        for tensor, numbers in (
            (layer.running_mean, [1.0, 2.0]),
            (layer.running_var, [4.0, 0.25]),
            (layer.weight, [3.0, 5.0]),
            (layer.bias, [7.0, 11.0]),
        ):
            assert tensor is not None
            tensor.copy_(torch.tensor(numbers))
    arrays = module_arrays(nn.Sequential(layer))
    assert arrays["0.scale"].tolist() == [3.0 / 2.0, 5.0 / 0.5]
    assert arrays["0.shift"].tolist() == [7.0 - 3.0 / 2.0, 11.0 - 2.0 * 5.0 / 0.5]


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


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (nn.BatchNorm1d(3), (4, 3), r"in training mode it mixes the examples .* module.eval\(\)"),
        (nn.BatchNorm1d(3, track_running_stats=False).eval(), (4, 3), "without running stat"),
        (nn.InstanceNorm1d(3, track_running_stats=True).eval(), (3, 4), "track_running_stats=True"),
        (Wrong(), (3, 4), "its weight must be a tensor, got 3.0"),
    ],
    ids=str,
)
def test_statistics_of_a_batch_are_refused(
    layer: nn.Module, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UnsupportedModuleError, match=message):
        from_module(layer, shape)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (nn.LayerNorm((3, 4)), (2, 4), r"last axes are \(3, 4\), got an input of shape \(2, 4\)"),
        (nn.GroupNorm(2, 6), (2, 4, 3), r"wants 6 channels on axis 1, .* shape \(2, 4, 3\)"),
        (nn.BatchNorm1d(3).eval(), (4, 2), r"wants 3 channels on axis 1, .* shape \(4, 2\)"),
    ],
    ids=str,
)
def test_other_sizes_are_refused(layer: nn.Module, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(SizeError, match=message):
        from_module(layer, shape)
