"""Components of CP layers: unit vectors and weights, sorted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.factorize import (
    CPComponents,
    CPConv2d,
    CPFormat,
    CPLinear,
    FactorizedConv1d,
    FactorizedConv2d,
    SVDFormat,
    TuckerFormat,
    cores_of,
)
from rankscope.factorize.cp_layers import cp_format
from rankscope.factorize.layer import sorted_components

LAYERS = (
    lambda: CPConv2d(3, 4, (3, 2), rank=5),
    lambda: CPConv2d(3, 4, 1, rank=2),
    lambda: CPLinear(5, 4, rank=3),
    lambda: FactorizedConv1d.from_dense(nn.Conv1d(3, 4, 3), CPFormat(), (4,)),
)


def norms(vectors: Tensor) -> Tensor:
    lengths: Tensor = vectors.reshape(len(vectors), -1).norm(dim=1)
    return lengths


@pytest.mark.parametrize("make", LAYERS)
def test_components_are_sorted_unit_vectors_that_make_the_weight(make: object) -> None:
    assert callable(make)
    layer = make().double()
    components = layer.normalized()
    weights, inputs, outputs, kernels = components
    assert (weights[:-1] >= weights[1:]).all()
    assert (weights > 0).all()
    for vectors in (inputs, outputs, kernels):
        torch.testing.assert_close(norms(vectors), torch.ones_like(weights))
    torch.testing.assert_close(components.to_dense(), layer.to_dense().weight)
    assert components.shape == layer.shape


@pytest.mark.parametrize("make", LAYERS)
def test_cores_made_of_components_make_the_same_weight(make: object) -> None:
    assert callable(make)
    layer = make().double()
    components = layer.normalized()
    cores = cores_of(components)
    format = cp_format(layer.shape)
    torch.testing.assert_close(format.to_dense(cores, layer.shape), layer.to_dense().weight)
    for core in cores.values():
        squares = core.square().sum()
        torch.testing.assert_close(squares, next(iter(cores.values())).square().sum())


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**16))
def test_scaled_outputs_are_those_of_the_scaled_weight(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    parts = [torch.randn(size, generator=draw).double() for size in ((6, 3), (6, 4), (6, 3, 3))]
    components, order = sorted_components(*parts)
    torch.testing.assert_close(
        components.weights, (norms(parts[0]) * norms(parts[1]) * norms(parts[2]))[order]
    )
    scale = torch.randn(4, generator=draw).double()
    scaled, moved = components.scaled_outputs(scale)
    expected = components.to_dense() * scale[:, None, None, None]
    torch.testing.assert_close(scaled.to_dense(), expected)
    assert (scaled.weights[:-1] >= scaled.weights[1:]).all()
    for place, old in enumerate(moved.tolist()):
        one, other = scaled.taken(slice(place, place + 1)), components.taken(slice(old, old + 1))
        torch.testing.assert_close(one.to_dense(), other.to_dense() * scale[:, None, None, None])


def test_a_component_of_weight_zero_stays_zero() -> None:
    components, _ = sorted_components(torch.zeros(1, 2), torch.ones(1, 3), torch.ones(1, 2, 2))
    assert components.weights.tolist() == [0.0]
    assert not components.to_dense().any()


def test_some_components_are_taken_in_order() -> None:
    components = CPLinear(4, 4, rank=3).double().normalized()
    assert isinstance(components, CPComponents)
    first = components.taken(slice(2))
    assert torch.equal(first.weights, components.weights[:2])
    assert torch.equal(components.taken(torch.tensor([2, 0])).weights, components.weights[[2, 0]])


def test_other_formats_and_groups_have_no_components() -> None:
    tucker = FactorizedConv2d.from_dense(nn.Conv2d(4, 4, 3), TuckerFormat(), (2, 2))
    with pytest.raises(LayerError, match=r"weight \(4, 4, 3, 3\) as tucker in 1 group"):
        tucker.normalized()
    svd = FactorizedConv2d.from_dense(nn.Conv2d(4, 4, 3), SVDFormat(), (2,))
    with pytest.raises(LayerError, match="as svd in 1 group"):
        svd.normalized()
    grouped = FactorizedConv2d.from_dense(nn.Conv2d(4, 4, 3, groups=2), CPFormat(), (2,))
    with pytest.raises(LayerError, match=r"weight \(2, 2, 3, 3\) as cp in 2 group"):
        grouped.normalized()
