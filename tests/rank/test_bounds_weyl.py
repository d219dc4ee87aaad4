"""Weyl's dimensions against tableaux and against the identities the counting bound rests on."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import covariant_count, invariant_count, multiset, partitions, weyl_dimension
from rankscope.rank.bounds.sizes import MAX_PARTITIONS, require_few_partitions

SHAPES = [shape for total in range(6) for shape in partitions(total, 3)]


def semistandard_tableaux(shape: tuple[int, ...], size: int) -> int:
    """Fillings with 1..size that never fall along a row and rise down every column."""
    boxes = [(row, column) for row, length in enumerate(shape) for column in range(length)]
    fillings = (
        dict(zip(boxes, letters, strict=True))
        for letters in itertools.product(range(size), repeat=len(boxes))
    )
    return sum(
        all(
            filling.get((row, column - 1), -1) <= letter
            and filling.get((row - 1, column), -1) < letter
            for (row, column), letter in filling.items()
        )
        for filling in fillings
    )


@settings(deadline=None)
@given(shape=st.sampled_from(SHAPES), size=st.integers(3, 4))
def test_the_dimension_counts_semistandard_tableaux(shape: tuple[int, ...], size: int) -> None:
    assert weyl_dimension(shape, size) == semistandard_tableaux(shape, size)


@settings(deadline=None)
@given(shape=st.sampled_from(SHAPES), size=st.integers(3, 9), extra=st.integers(0, 2))
def test_empty_rows_change_nothing_and_more_rows_than_the_size_leave_nothing(
    shape: tuple[int, ...], size: int, extra: int
) -> None:
    trimmed = tuple(row for row in shape if row)
    assert weyl_dimension(trimmed, size) == weyl_dimension(shape, size)
    assert weyl_dimension((1,) * (size + 1 + extra), size) == 0


@settings(deadline=None)
@given(total=st.integers(0, 9), parts=st.integers(1, 5))
def test_partitions_are_all_falling_sequences_each_once(total: int, parts: int) -> None:
    falling = [
        word
        for word in itertools.product(range(total, -1, -1), repeat=parts)
        if sum(word) == total and list(word) == sorted(word, reverse=True)
    ]
    assert list(partitions(total, parts)) == falling


@settings(deadline=None)
@given(rows=st.integers(1, 4), columns=st.integers(1, 4), degree=st.integers(0, 6))
def test_shapes_of_both_sides_fill_the_polynomials_on_matrices(
    rows: int, columns: int, degree: int
) -> None:
    # Cauchy: all monomials in rows x columns variables.
    parts = min(rows, columns)
    dimensions = [
        weyl_dimension(shape, rows) * weyl_dimension(shape, columns)
        for shape in partitions(degree, parts)
    ]
    assert sum(dimensions) == multiset(rows * columns, degree)


@settings(deadline=None)
@given(size=st.integers(1, 5), degree=st.integers(0, 6))
def test_even_shapes_fill_the_powers_of_symmetric_matrices(size: int, degree: int) -> None:
    even = [tuple(2 * row for row in shape) for shape in partitions(degree, size)]
    pairs = size * (size + 1) // 2
    assert sum(weyl_dimension(shape, size) for shape in even) == multiset(pairs, degree)


@settings(deadline=None)
@given(shape=st.sampled_from(SHAPES), size=st.integers(3, 6))
def test_adding_a_box_multiplies_by_one_more_vector(shape: tuple[int, ...], size: int) -> None:
    padded = (*shape, *[0] * (size - len(shape)))
    larger = [tuple(row + (i == box) for i, row in enumerate(padded)) for box in range(size)]
    assert sum(weyl_dimension(shape, size) for shape in larger) == size * weyl_dimension(
        shape, size
    )


@settings(deadline=None)
@given(rank=st.integers(1, 5), tokens=st.integers(1, 6), degree=st.integers(0, 6))
def test_counts_never_fall_with_the_degree_or_the_tokens(
    rank: int, tokens: int, degree: int
) -> None:
    for count in (invariant_count, covariant_count):
        assert count(rank, tokens, degree) <= count(rank, tokens, degree + 1)
        assert count(rank, tokens, degree) <= count(rank, tokens + 1, degree)


@settings(deadline=None)
@given(max_parts=st.integers(1, 6), num_degrees=st.integers(1, 25))
def test_small_tables_pass(max_parts: int, num_degrees: int) -> None:
    total = sum(len(list(partitions(degree, max_parts))) for degree in range(num_degrees))
    assert total <= MAX_PARTITIONS
    require_few_partitions(max_parts, max_parts, num_degrees)


def test_a_table_is_refused_from_the_first_partition_too_many() -> None:
    # One part: one partition for each degree.
    require_few_partitions(1, 1, MAX_PARTITIONS)
    with pytest.raises(BoundError, match=r"more than 30,000 partitions \(degrees up to 30,000\)"):
        require_few_partitions(1, 1, MAX_PARTITIONS + 1)
    # Two parts: 1 + 1 + 2 + 2 + 3 + 3 ... up to degree 2 n - 1 is n (n + 1).
    require_few_partitions(9, 2, 2 * 172)
    with pytest.raises(BoundError, match=r"2 tokens .* rank 9 .* at least 9 tokens"):
        require_few_partitions(9, 2, 2 * 173)
