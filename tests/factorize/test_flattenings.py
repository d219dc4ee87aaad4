import math
from itertools import combinations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.factorize import Flattening, Modular, Numeric, best_matricization, compose
from rankscope.rank import Partition, matricize, numeric_rank

SHAPES = st.lists(st.integers(1, 4), min_size=2, max_size=4)
PRIMES = st.sampled_from([3, 101, 16777213])


@settings(deadline=None, max_examples=50)
@given(shape=SHAPES, num_components=st.integers(0, 5), prime=PRIMES, seed=st.integers(0, 99))
def test_no_matricization_modulo_a_prime_exceeds_the_number_of_products(
    shape: list[int], num_components: int, prime: int, seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    factors = tuple(
        draw.integers(-5, 6, (size, num_components)).astype(numpy.float64) for size in shape
    )
    tensor = compose(factors).astype(numpy.int64)
    assert best_matricization(tensor, Modular(prime)).bound <= num_components


@settings(deadline=None, max_examples=50)
@given(
    shape=SHAPES,
    num_components=st.integers(0, 5),
    logarithm=st.integers(-9, -1),
    seed=st.integers(0, 99),
)
def test_no_change_within_the_error_lowers_a_numeric_bound(
    shape: list[int], num_components: int, logarithm: int, seed: int
) -> None:
    """A sum of products, changed by just less than the error: its number stays an upper bound."""
    draw, error = numpy.random.default_rng(seed), 10.0**logarithm
    tensor = compose(tuple(draw.standard_normal((size, num_components)) for size in shape))
    change = draw.standard_normal(shape)
    change *= 0.999 * error / numpy.linalg.norm(change)
    assert best_matricization(tensor + change, Numeric(error)).bound <= num_components


@settings(deadline=None, max_examples=30)
@given(shape=SHAPES, seed=st.integers(0, 99))
def test_the_best_matricization_is_the_best_of_all_partitions(shape: list[int], seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    tensor = compose(tuple(draw.standard_normal((size, 3)) for size in shape))
    order = len(shape)
    sides = [side for count in range(1, order) for side in combinations(range(order), count)]
    ranks = {
        left: numeric_rank(matricize(tensor, Partition.of(left, order=order))).value
        for left in sides
    }
    best = best_matricization(tensor / numpy.linalg.norm(tensor), Numeric(1e-10))
    assert best.bound == max(ranks.values())
    assert best.bound == ranks[best.groups[0]]


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(1, 6), inner=st.integers(1, 6), size=st.integers(1, 6), prime=PRIMES)
def test_restriction_keeps_as_much_rank_as_the_size_allows(
    rows: int, inner: int, size: int, prime: int
) -> None:
    draw = numpy.random.default_rng(rows + 10 * inner)
    product = draw.standard_normal((rows, inner)) @ draw.standard_normal((inner, 7))
    restricted = Numeric(1e-10).restrict(product, size)
    assert len(restricted) == min(rows, inner, size)
    assert numeric_rank(restricted).value == len(restricted)
    assert numpy.linalg.norm(restricted) <= numpy.linalg.norm(product) * (1 + 1e-12)
    integers = draw.integers(-3, 4, (rows, inner)) @ draw.integers(-3, 4, (inner, 7))
    modular = Modular(prime)
    smaller = modular.restrict(integers, size)
    # Mixing over a small field may lose rank; a large one does so once in millions.
    expected = min(size, modular.matrix_rank(integers))
    assert len(smaller) == expected
    assert modular.matrix_rank(smaller) == expected or prime == 3


def test_repeated_entries_raise_the_numeric_tolerance() -> None:
    matrix = numpy.diag([1.0, 0.15])
    assert Numeric(0.1).matrix_rank(matrix) == 2
    assert Numeric(0.1).matrix_rank(matrix, 4) == 1


def test_flattenings_say_what_they_prove() -> None:
    plain = Flattening(((0, 2), (1,)), 4, 1, Modular(101))
    assert plain.bound == 4
    assert str(plain) == "matricization (0, 2) against (1,) has rank 4 modulo 101"
    koszul = Flattening(((0,), (1,), (2,)), 9, 2, Numeric(1e-10), 1, 3)
    assert koszul.bound == math.ceil(9 / 2)
    assert str(koszul) == (
        "Koszul flattening p = 1 of (0,) against (1,) against (2,), the first restricted to size "
        "3, has rank 9 where a product has 2, for every tensor within a relative error of 1e-10"
    )


@pytest.mark.parametrize("arithmetic", [Modular(101), Numeric(1e-10)])
def test_zero_has_bound_zero(arithmetic: Modular | Numeric) -> None:
    assert best_matricization(numpy.zeros((2, 3, 2), dtype=int), arithmetic).bound == 0
