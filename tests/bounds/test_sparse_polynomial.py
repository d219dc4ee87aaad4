"""Sparse polynomials and their matchings."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.bounds.sparse_polynomial import (
    sparse_polynomial_lower_bound,
    sparse_polynomial_upper_bound,
)
from rankscope.errors import BoundError


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
