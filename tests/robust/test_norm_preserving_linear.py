import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import LayerError
from rankscope.robust import (
    BlockReflector,
    Cayley,
    Householder,
    MatrixExponential,
    OrthogonalLinear,
    Parametrization,
)

PARAMETRIZATIONS = [Cayley(), BlockReflector(), MatrixExponential(), Householder()]


def moved(layer: OrthogonalLinear, seed: int = 0) -> OrthogonalLinear:
    """In float64, away from where it started."""
    generator = torch.Generator().manual_seed(seed)
    layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    parametrization=st.sampled_from(PARAMETRIZATIONS),
    seed=st.integers(0, 2**32),
)
def test_all_singular_values_are_one(
    sizes: tuple[int, int], parametrization: Parametrization, seed: int
) -> None:
    layer = moved(OrthogonalLinear(*sizes, parametrization=parametrization), seed)
    weight = layer.weight()
    assert weight.shape == sizes[::-1]
    values: Tensor = torch.linalg.svdvals(weight.detach())
    torch.testing.assert_close(values, torch.ones_like(values))


def test_every_direction_of_change_is_reached() -> None:
    # Matrices of 5 x 3 with orthonormal columns are a space of 15 - 6 dimensions.
    layer = moved(OrthogonalLinear(3, 5, bias=False), 1)
    free = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def weight(changed: dict[str, Tensor]) -> Tensor:
        out: Tensor = torch.func.functional_call(layer, changed, (torch.eye(3).double(),))
        return out

    parts = torch.func.jacrev(weight)(free).values()
    jacobian = torch.cat([part.reshape(15, -1) for part in parts], dim=1)
    assert int(torch.linalg.matrix_rank(jacobian)) == 9


def test_the_kept_weight_follows_every_change() -> None:
    layer = OrthogonalLinear(4, 4).eval()
    with torch.no_grad():
        first = layer.weight()
        assert layer.weight() is first
        layer.rotation.data.add_(torch.tril(torch.ones(4, 4)))
        assert not torch.equal(first, layer.weight())
    assert copy.deepcopy(layer).weight().requires_grad


def test_the_plain_layer_is_the_same() -> None:
    inputs = torch.randn(2, 3, 4, dtype=torch.float64)
    for bias in (True, False):
        layer = moved(OrthogonalLinear(4, 3, bias))
        torch.testing.assert_close(layer.to_linear()(inputs), layer(inputs))


def test_the_weight_is_built_in_full_precision_under_autocast() -> None:
    layer = OrthogonalLinear(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer.weight().dtype == torch.float32
        assert layer(torch.randn(1, 8)).dtype == torch.bfloat16


def test_empty_maps_are_refused() -> None:
    with pytest.raises(LayerError, match="got 0 inputs and 3 outputs"):
        OrthogonalLinear(0, 3)


def test_what_a_reader_sees() -> None:
    assert repr(OrthogonalLinear(4, 3)) == "OrthogonalLinear(4, 3, bias=True)"
