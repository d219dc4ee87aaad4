import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from rankscope.constructions.attention import (
    attend,
    lookup,
    transformer_scale,
    worked_example,
)
from rankscope.errors import ConstructionError

sizes = st.integers(1, 5)
seeds = st.integers(0, 2**16)


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_basis_keys_look_up_exactly_one_value() -> None:
    values, keys = random(0, 5, 3), torch.eye(5, dtype=torch.float64)
    assert torch.equal(lookup(keys[2], keys, values), values[2])
    both = lookup(keys[2] + 2 * keys[4], keys, values)
    torch.testing.assert_close(both, values[2] + 2 * values[4])


@settings(deadline=None, max_examples=30)
@given(seed=seeds, factor=st.floats(-3.0, 3.0))
def test_lookup_is_linear_in_each_argument(seed: int, factor: float) -> None:
    parts = [random(seed + number, 4, 4) for number in range(3)]
    others = [random(seed + 10 + number, 4, 4) for number in range(3)]
    for place in range(3):
        mixed = [*parts]
        mixed[place] = parts[place] + factor * others[place]
        other = [*parts]
        other[place] = others[place]
        torch.testing.assert_close(lookup(*mixed), lookup(*parts) + factor * lookup(*other))


@settings(deadline=None, max_examples=30)
@given(queries=sizes, keys=sizes, features=sizes, outputs=sizes, seed=seeds)
def test_attention_is_torchs(
    queries: int, keys: int, features: int, outputs: int, seed: int
) -> None:
    arrays = (
        random(seed, queries, features),
        random(seed + 1, keys, features),
        random(seed + 2, keys, outputs),
    )
    found = attend(*arrays, scale=transformer_scale(features)).outputs
    torch.testing.assert_close(found, scaled_dot_product_attention(*arrays))


@settings(deadline=None, max_examples=30)
@given(seed=seeds, count=st.integers(2, 6), sharpness=st.floats(1.0, 40.0))
def test_a_sharp_query_looks_up_one_value(seed: int, count: int, sharpness: float) -> None:
    keys, values = torch.eye(count, dtype=torch.float64), random(seed, count, 3)
    found = attend(sharpness * keys, keys, values).outputs
    wrong = (count - 1) * torch.tensor(-sharpness, dtype=torch.float64).exp()
    assert (found - values).abs().max() <= 2 * values.abs().max() * wrong + 1e-14


def test_outputs_are_between_the_values() -> None:
    values = random(1, 6, 2)
    found = attend(random(2, 4, 3), random(3, 6, 3), values).outputs
    assert bool((found >= values.amin(dim=0)).all())
    assert bool((found <= values.amax(dim=0)).all())


def test_the_worked_example_has_the_printed_numbers() -> None:
    found = worked_example()
    assert found.scores.tolist() == [[112.0, 96.0]]
    assert found.scaled.tolist() == [[14.0, 12.0]]
    assert [round(weight, 2) for weight in found.weights[0].tolist()] == [0.88, 0.12]
    torch.testing.assert_close(found.outputs, found.weights)


def test_shapes_that_do_not_fit_are_refused() -> None:
    zeros = torch.zeros
    with pytest.raises(ConstructionError, match=r"same features.*\(1, 2\), \(3, 4\), \(3, 5\)"):
        attend(zeros(1, 2), zeros(3, 4), zeros(3, 5))
    with pytest.raises(ConstructionError, match=r"same count.*\(3, 4\), \(2, 5\)"):
        lookup(zeros(4), zeros(3, 4), zeros(2, 5))
    with pytest.raises(ConstructionError, match=r"takes matrices.*\(3,\)"):
        attend(zeros(1, 2), zeros(3, 2), zeros(3))


def test_a_scale_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ConstructionError, match="positive scale, got -2"):
        attend(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1), scale=-2.0)
