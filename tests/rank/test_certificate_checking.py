import itertools

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.progress import Progress
from rankscope.rank import (
    CertifiedMinor,
    Numbers,
    Residues,
    SplitFunction,
    determinant_modulo,
    draw_challenges,
    largest_prime_below,
    pack_answers,
    rank_modulo,
    solve_modulo,
)
from rankscope.rank.minors import InPieces, MinorTiles, product_modulo
from rankscope.workers import Workers

PRIMES = [2, 101, *(largest_prime_below(2**bits) for bits in (24, 31))]


class Table(SplitFunction):
    """Random residues that depend on the numbers of row, column and grade; counts its pairs."""

    def __init__(self, prime: int, num_grades: int = 1) -> None:
        self.prime = prime
        self.num_grades = num_grades
        self.table = numpy.random.default_rng(num_grades).integers(0, prime, (num_grades, 60, 60))
        self.calls: list[tuple[int, int]] = []

    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        return numpy.asarray(self.graded_values(rows, columns).sum(axis=0) % self.prime)

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        self.calls.append((len(rows), len(columns)))
        return numpy.asarray(self.table[:, rows[:, None], columns])


# (grade, rows, columns); made into minors outside the strategies, as the type checks of the
# package look at random entries of a tuple, which hypothesis does not allow inside.
Plain = tuple[int | None, list[int], list[int]]


@st.composite
def plain_minors(draw: st.DrawFn) -> list[Plain]:
    grades: list[int | None] = [*draw(st.lists(st.integers(0, 3), unique=True))]
    found: list[Plain] = []
    for grade in grades or [None]:
        size = draw(st.integers(1, 12))
        numbers = st.sets(st.integers(0, 59), min_size=size, max_size=size).map(sorted)
        found.append((grade, draw(numbers), draw(numbers)))
    return found


def made(plain: list[Plain]) -> list[CertifiedMinor]:
    return [CertifiedMinor(grade, tuple(rows), tuple(columns)) for grade, rows, columns in plain]


@settings(deadline=None)
@given(
    plain=plain_minors(),
    entries=st.integers(1, 2000),
    workers=st.sampled_from([Workers("sequential"), Workers(jobs=2)]),
)
def test_minors_are_put_together_from_tiles_of_any_height(
    plain: list[Plain], entries: int, workers: Workers
) -> None:
    table, minors = Table(101, num_grades=4), made(plain)
    matrices = MinorTiles(table, minors, workers, entries).matrices()
    for minor, matrix in zip(minors, matrices, strict=True):
        whole = table.table.sum(axis=0) % 101 if minor.grade is None else table.table[minor.grade]
        assert (matrix == whole[numpy.ix_(minor.rows, minor.columns)]).all()


@settings(deadline=None, max_examples=30)
@given(plain=plain_minors(), prime=st.sampled_from(PRIMES), data=st.data())
def test_only_true_answers_pass(plain: list[Plain], prime: int, data: st.DataObject) -> None:
    table, minors = Table(prime, num_grades=4), made(plain)
    matrices = MinorTiles(table, minors).matrices()
    if any(determinant_modulo(matrix, prime) == 0 for matrix in matrices):
        return
    sides = [draw_challenges(b"", 0, len(matrix), prime) for matrix in matrices]
    solutions = [solve_modulo(m, side, prime) for m, side in zip(matrices, sides, strict=True)]
    answered = [
        CertifiedMinor(minor.grade, minor.rows, minor.columns, pack_answers(solution))
        for minor, solution in zip(minors, solutions, strict=True)
    ]
    assert not any(MinorTiles(table, answered, entries_at_once=300).wrong_answers(sides))
    culprit = data.draw(st.integers(0, len(minors) - 1))
    changed = solutions[culprit].copy()
    spot = tuple(data.draw(st.integers(0, length - 1)) for length in changed.shape)
    changed[spot] = (changed[spot] + 1) % prime
    minor = minors[culprit]
    answered[culprit] = CertifiedMinor(
        minor.grade, minor.rows, minor.columns, pack_answers(changed)
    )
    wrong = MinorTiles(table, answered).wrong_answers(sides)
    assert [number for number, count in enumerate(wrong) if count] == [culprit]


def test_small_tiles_are_held_and_every_pair_is_evaluated_once_for_all_grades() -> None:
    table = Table(101, num_grades=3)
    minors = [
        CertifiedMinor(grade, tuple(range(size)), tuple(range(size)))
        for grade, size in enumerate((20, 60, 40))
    ]
    seen: list[Progress] = []
    MinorTiles(table, minors, Workers("sequential"), 3 * 30 * 30).matrices(seen.append)
    assert table.calls == [(30, 30)] * 4
    assert [(progress.done, progress.total) for progress in seen] == [(n, 4) for n in range(1, 5)]


@settings(deadline=None)
@given(num_rows=st.integers(0, 9), num_columns=st.integers(0, 9), pairs=st.integers(1, 100))
def test_pieces_fit_together_and_are_as_small_as_asked(
    num_rows: int, num_columns: int, pairs: int
) -> None:
    table = Table(101, num_grades=2)
    rows, columns = numpy.arange(num_rows) * 5, numpy.arange(num_columns)[::-1] * 3
    pieces = InPieces(table, pairs)
    assert (pieces.values(rows, columns) == table.values(rows, columns)).all()
    table.calls.clear()
    assert (pieces.graded_values(rows, columns) == table.table[:, rows[:, None], columns]).all()
    assert all(height * width <= pairs for height, width in table.calls)


@settings(deadline=None)
@given(prime=st.sampled_from(PRIMES), size=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_a_determinant_is_not_0_exactly_at_full_rank(prime: int, size: int, seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    matrix = draw.integers(0, prime, (size, size)).astype(numpy.uint32)
    if seed % 2:
        matrix[-1] = matrix[0]
    assert (determinant_modulo(matrix, prime) != 0) == (rank_modulo(matrix, prime) == size)


@settings(deadline=None)
@given(prime=st.sampled_from(PRIMES), seed=st.integers(0, 2**32))
def test_products_are_those_of_the_integers(prime: int, seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    left, right = draw.integers(0, prime, (3, 5)), draw.integers(0, prime, (5, 2))
    wanted = left.astype(object) @ right.astype(object) % prime
    assert (product_modulo(left, right, prime) == wanted).all()


@pytest.mark.parametrize("prime", PRIMES)
def test_the_largest_product_does_not_overflow(prime: int) -> None:
    """(p - 1)^2 is 1 modulo p, so 2^16 of them are 2^16."""
    left = numpy.full((1, 2**16), prime - 1)
    assert product_modulo(left, left.T, prime).tolist() == [[2**16 % prime]]


def test_spots_are_points_of_the_minors_and_depend_on_the_seed() -> None:
    minor = CertifiedMinor(None, tuple(range(100, 400)), tuple(range(0, 900, 3)))
    rows = MinorTiles(Table(101), [minor])
    chosen = [rows.spots(seed) for seed in (b"a", b"b")]
    for spots in chosen:
        assert set(spots[0]) <= set(minor.rows)
        assert set(spots[1]) <= set(minor.columns)
    for one, other in itertools.combinations(
        [side.tolist() for pair in chosen for side in pair], 2
    ):
        assert one != other
