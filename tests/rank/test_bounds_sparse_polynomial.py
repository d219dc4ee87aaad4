"""Sparse polynomials and their matchings."""

import random

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import rank_modulo, sparse_polynomial_lower_bound, sparse_polynomial_upper_bound


@settings(deadline=None, max_examples=60)
@given(
    pairs=st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=10),
    seed=st.integers(0, 99),
)
def test_sparse_polynomials_attain_their_matching(pairs: set[tuple[int, int]], seed: int) -> None:
    terms = tuple(sorted(pairs))
    prime, draw = 1_000_003, random.Random(seed)
    matrix = [[0] * 5 for _ in range(5)]
    for top, bottom in terms:
        matrix[top][bottom] = draw.randrange(1, prime)
    rank = 0
    for column in range(5):
        pivot = next((i for i in range(rank, 5) if matrix[i][column]), None)
        if pivot is None:
            continue
        matrix[rank], matrix[pivot] = matrix[pivot], matrix[rank]
        for i in range(rank + 1, 5):
            factor = matrix[i][column] * pow(matrix[rank][column], -1, prime)
            matrix[i] = [
                (a - factor * b) % prime for a, b in zip(matrix[i], matrix[rank], strict=True)
            ]
        rank += 1
    assert sparse_polynomial_upper_bound(terms, (0,)).value == rank
    assert sparse_polynomial_lower_bound(terms, (0,)).value == rank


def sampled(terms: dict[tuple[int, int], int], points: int, seed: int) -> int:
    """Rank of the values of a sum of c x^i y^j at random points, modulo a prime."""
    prime, draw = 16_777_213, random.Random(seed)
    tops, bottoms = ([draw.randrange(prime) for _ in range(points)] for _ in range(2))
    values = [[sum(c * pow(x, i, prime) * pow(y, j, prime) for (i, j), c in terms.items()) % prime
               for y in bottoms] for x in tops]  # fmt: skip
    return rank_modulo(numpy.array(values, dtype=numpy.int64), prime)


@settings(deadline=None, max_examples=60)
@given(
    terms=st.dictionaries(
        st.tuples(st.integers(0, 4), st.integers(0, 4)), st.integers(1, 3), min_size=1
    ),
    points=st.integers(1, 8),
    seed=st.integers(0, 99),
)
def test_sampled_values_have_the_rank_of_the_coefficients(
    terms: dict[tuple[int, int], int], points: int, seed: int
) -> None:
    coefficients = numpy.zeros((5, 5), dtype=numpy.int64)
    for place, coefficient in terms.items():
        coefficients[place] = coefficient
    expected = min(points, rank_modulo(coefficients, 16_777_213))
    assert sampled(terms, points, seed) == expected


@settings(deadline=None, max_examples=60)
@given(terms=st.sets(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=12))
def test_parts_of_different_degree_add_up_if_the_polynomial_is_homogeneous(
    terms: set[tuple[int, ...]],
) -> None:
    # A first variable brings every term to the same degree.
    whole = tuple((8 - sum(term), *term) for term in sorted(terms))
    ranks = [
        sparse_polynomial_lower_bound(part, (0, 1, 2)).value
        for degree in range(5)
        if (part := tuple(term for term in whole if sum(term[3:]) == degree))
    ]
    assert sum(rank or 0 for rank in ranks) == sparse_polynomial_lower_bound(whole, (0, 1, 2)).value
    # x + x y is not homogeneous: two parts of rank one, and rank one in all.
    assert sparse_polynomial_lower_bound(((1, 0), (1, 1)), (0,)).value == 1


def test_the_left_variables_decide_the_matching() -> None:
    terms = ((1, 1, 1), (2, 1, 2))
    assert sparse_polynomial_upper_bound(terms, (1,)).value == 1
    assert sparse_polynomial_upper_bound(terms, (2,)).value == 2


def test_terms_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BoundError, match="at least 1 term, got 0"):
        sparse_polynomial_upper_bound((), (0,))
    with pytest.raises(BoundError, match=r"needs 2 exponents of at least 0, got \(1,\)"):
        sparse_polynomial_upper_bound(((1, 1), (1,)), (0,))
    with pytest.raises(BoundError, match=r"of at least 0, got \(1, -1\)"):
        sparse_polynomial_upper_bound(((1, -1),), (0,))
    with pytest.raises(BoundError, match="2 terms hold only 1 different"):
        sparse_polynomial_upper_bound(((1, 1), (1, 1)), (0,))
