"""CP layers at a rank, and dense layers written as CP exactly."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.errors import LayerError
from rankscope.factorize import (
    CPConv2d,
    CPLinear,
    WeightShape,
    as_cp,
    cp_unit,
    exact_components,
    matched_rank,
)

sizes = st.integers(1, 5)


@settings(deadline=None, max_examples=30)
@given(
    out_size=sizes, in_size=sizes, kernel=st.lists(sizes, max_size=2), seed=st.integers(0, 2**16)
)
def test_every_weight_is_a_sum_of_orthogonal_components(
    out_size: int, in_size: int, kernel: list[int], seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(out_size, in_size, *kernel, generator=draw, dtype=torch.float64)
    found = exact_components(weight)
    torch.testing.assert_close(found.to_dense(), weight)
    three = sorted((out_size, in_size, math.prod(kernel)))
    assert len(found.weights) == three[0] * three[1]
    torch.testing.assert_close(found.weights.square().sum(), weight.square().sum())
    every = [found.taken(slice(r, r + 1)).to_dense().flatten() for r in range(len(found.weights))]
    gram = torch.stack(every) @ torch.stack(every).T
    torch.testing.assert_close(gram, torch.diag(found.weights.square()))


@pytest.mark.parametrize(
    "dense",
    [
        nn.Linear(5, 4),
        nn.Linear(3, 6, bias=False),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.Conv2d(3, 4, 3, stride=2, padding=1, padding_mode="circular"),
        nn.Conv2d(3, 2, 1),
        nn.Conv1d(3, 4, 3, dilation=2),
    ],
)
def test_a_dense_layer_in_cp_form_computes_the_same(
    dense: nn.Linear | nn.Conv1d | nn.Conv2d,
) -> None:
    layer = as_cp(dense.double())
    shape = (2, 6)[-1:] if isinstance(dense, nn.Linear) else (8,) * len(dense.kernel_size)
    channels = () if isinstance(dense, nn.Linear) else (dense.in_channels,)
    size = (dense.in_features,) if isinstance(dense, nn.Linear) else (*channels, *shape)
    inputs = torch.randn(3, *size, dtype=torch.float64)
    torch.testing.assert_close(layer(inputs), dense(inputs))


def test_groups_and_weights_that_are_not_finite_are_refused() -> None:
    with pytest.raises(LayerError, match="Conv2d in 2 groups; wanted 1"):
        as_cp(nn.Conv2d(4, 4, 3, groups=2))
    with pytest.raises(LayerError, match="2 of 6 numbers"):
        exact_components(torch.tensor([[1.0, float("nan"), 2.0], [float("inf"), 0.0, 0.0]]))


@pytest.mark.parametrize(
    ("shape", "rank"),
    [
        (WeightShape(64, 64, (3, 3)), 267),
        (WeightShape(512, 512), 256),
        (WeightShape(32, 16, (1, 1)), 10),
        (WeightShape(1, 1), 1),
    ],
)
def test_matched_ranks_are_the_nearest(shape: WeightShape, rank: int) -> None:
    assert matched_rank(shape) == rank
    nearest = min(range(1, 1000), key=lambda r: abs(r * cp_unit(shape) - shape.num_parameters))
    assert matched_rank(shape) == nearest


@pytest.mark.parametrize(
    ("weight", "variance"),
    [
        (CPConv2d(32, 48, 3, rank=60, generator=torch.Generator().manual_seed(0)), 2 / 288),
        (CPLinear(200, 150, rank=50, generator=torch.Generator().manual_seed(0)), 2 / 200),
    ],
)
def test_weights_start_with_the_variance_of_rectifiers(weight: nn.Module, variance: float) -> None:
    dense = weight.to_dense().weight.detach()  # type: ignore[operator]
    # Entries share their factors, so that the mean of squares is within a tenth or so.
    assert float(dense.square().mean()) == pytest.approx(variance, rel=0.2)
    assert not any(weight.bias)  # type: ignore[arg-type]


def test_settings_are_those_of_a_convolution() -> None:
    layer = CPConv2d(2, 3, 3, rank=2, stride=2, padding=1, bias=False, padding_mode="circular")
    assert layer.bias is None
    assert layer(torch.zeros(1, 2, 8, 8)).shape == (1, 3, 4, 4)
    assert layer.to_dense().padding_mode == "circular"
    assert CPLinear(3, 4, rank=2, bias=False).bias is None


def test_ranks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(LayerError, match=r"from 1 to \(3,\), got \(4,\)"):
        CPLinear(3, 5, rank=4)
