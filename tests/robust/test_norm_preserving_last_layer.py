import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import LayerError
from rankscope.robust import NormalizedLinear


@settings(deadline=None)
@given(in_features=st.integers(1, 6), out_features=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_every_output_alone_has_constant_one_and_all_together_the_one_it_says(
    in_features: int, out_features: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    layer = NormalizedLinear(in_features, out_features).double()
    layer.directions.data = torch.randn(
        out_features, in_features, generator=generator, dtype=torch.float64
    )
    pair = torch.randn(2, in_features, generator=generator, dtype=torch.float64)
    apart, moved = (pair[0] - pair[1]).norm(), layer(pair)
    change = moved[0] - moved[1]
    assert change.abs().max() <= apart * (1 + 1e-12)
    assert change.norm() <= layer.lipschitz_constant * apart * (1 + 1e-12)
    assert 1 - 1e-12 <= layer.lipschitz_constant <= out_features**0.5 * (1 + 1e-12)


def test_a_class_is_safe_within_the_radius_of_its_documentation() -> None:
    layer = NormalizedLinear(5, 4).double()
    features = torch.randn(5, dtype=torch.float64)
    logits, weight = layer(features).detach(), layer.weight().detach()
    best = int(logits.argmax())
    others = [place for place in range(4) if place != best]
    gaps = torch.stack([logits[best] - logits[place] for place in others])
    apart = torch.stack([weight[best] - weight[place] for place in others])
    radii = gaps / apart.norm(dim=1)
    nearest = int(radii.argmin())
    direction = -apart[nearest] / apart[nearest].norm()
    for factor, is_same in ((0.999, True), (1.001, False)):
        moved = layer(features + factor * radii[nearest] * direction)
        assert (int(moved.argmax()) == best) == is_same


def test_the_length_of_a_direction_does_not_matter() -> None:
    layer = NormalizedLinear(3, 2, bias=False)
    before = layer.weight()
    layer.directions.data *= 7.0
    torch.testing.assert_close(layer.weight(), before)


def test_empty_maps_are_refused() -> None:
    with pytest.raises(LayerError, match="got 3 inputs and 0 outputs"):
        NormalizedLinear(3, 0)


def test_what_a_reader_sees() -> None:
    assert repr(NormalizedLinear(4, 3)) == "NormalizedLinear(4, 3, bias=True)"
