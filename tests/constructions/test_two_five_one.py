import numpy
import pytest
from hypothesis import given, settings, strategies
from tests.constructions.strategies import points_in_square, sampled_patterns

from rankscope.constructions.dense import evaluate
from rankscope.constructions.explicit_networks import two_five_one
from rankscope.errors import ConstructionError


@settings(deadline=None, max_examples=15)
@given(strategies.integers(0, 999), strategies.floats(0, 50))
def test_without_biases_the_function_is_homogeneous(seed: int, factor: float) -> None:
    network = two_five_one(seed).network
    points = points_in_square(30, seed=seed)
    numpy.testing.assert_allclose(
        evaluate(network, factor * points), factor * evaluate(network, points), atol=1e-10
    )


@settings(deadline=None, max_examples=15)
@given(strategies.integers(0, 999), strategies.sampled_from([0.0, 0.3, 1.0]))
def test_there_are_at_most_as_many_regions_as_lines_allow(seed: int, spread: float) -> None:
    found = two_five_one(seed, bias_spread=spread)
    seen = sampled_patterns(found.network, points_in_square(2000, size=2.0))
    assert len(seen) <= found.regions.num_patterns <= found.most_regions
    assert found.most_regions == (16 if spread else 10)
    assert found.seed == seed


def test_five_lines_through_the_origin_make_ten_regions() -> None:
    assert {two_five_one(seed).regions.num_patterns for seed in range(5)} == {10}


def test_a_seed_gives_one_network_and_another_seed_another() -> None:
    points = points_in_square(5)
    first, again, other = (evaluate(two_five_one(seed).network, points) for seed in (3, 3, 4))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("spread", [-0.5, float("inf"), float("nan")])
def test_a_spread_that_is_none_is_refused(spread: float) -> None:
    with pytest.raises(ConstructionError, match=f"of at least 0, got {spread}"):
        two_five_one(0, bias_spread=spread)
