import numpy
import pytest

from rankscope.factorize import compose
from rankscope.factorize.truncation import random_start, resize


def test_random_starts_have_norm_1_and_follow_their_generator() -> None:
    first, second = (random_start((3, 4, 2), 5, numpy.random.default_rng(7)) for _ in range(2))
    assert numpy.linalg.norm(compose(first)) == pytest.approx(1.0)
    numpy.testing.assert_array_equal(compose(first), compose(second))
    assert [factor.shape for factor in first] == [(3, 5), (4, 5), (2, 5)]


def test_the_smallest_components_are_dropped() -> None:
    factors = (numpy.array([[1.0, 3.0, 2.0]]), numpy.ones((2, 3)))
    kept = resize(numpy.ones((1, 2)), factors, 2, numpy.random.default_rng(0))
    assert sorted(kept[0][0]) == [2.0, 3.0]


def test_new_components_are_as_large_as_what_is_missing() -> None:
    tensor = numpy.array([[3.0, 0.0], [0.0, 4.0]])
    one = (numpy.array([[0.0], [2.0]]), numpy.array([[0.0], [2.0]]))
    grown = resize(tensor, one, 3, numpy.random.default_rng(0))
    assert [factor.shape for factor in grown] == [(2, 3), (2, 3)]
    numpy.testing.assert_array_equal(grown[0][:, :1], one[0])
    added = compose(tuple(factor[:, 1:] for factor in grown))
    assert numpy.linalg.norm(added) == pytest.approx(3.0)


def test_the_right_number_of_components_stays_as_it_is() -> None:
    factors = random_start((2, 2), 3, numpy.random.default_rng(0))
    same = resize(numpy.eye(2), factors, 3, numpy.random.default_rng(1))
    numpy.testing.assert_allclose(compose(same), compose(factors))
