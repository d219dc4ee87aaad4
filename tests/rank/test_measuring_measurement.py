from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import CheckpointError, MeasurementError, TooLargeError
from rankscope.progress import Progress
from rankscope.rank import (
    MeasuredRank,
    MeasurementProblem,
    MeasureOptions,
    Numbers,
    Residues,
    SplitFunction,
    draw_residues,
    measure,
)
from rankscope.theorem import Magnitude, Theorem, UpperBound
from rankscope.workers import Workers

HERE = Workers("sequential")
DEGREE = 2  # of a sum of products of one drawn number of each side


class SumOfProducts(SplitFunction):
    """Graded parts of given ranks: sums of so many products of drawn numbers.

    `num_left` is how many evaluations may be asked for before the user loses patience.
    """

    def __init__(
        self,
        ranks: tuple[int, ...],
        prime: int,
        num_points: tuple[int | None, int | None] = (None, None),
    ) -> None:
        self.ranks = ranks
        self.prime = prime
        self.num_points = num_points
        self.num_grades = len(ranks)
        self.num_left = 10**9
        self.num_pairs = 0

    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        whole: Residues = self.graded_values(rows, columns).sum(0) % self.prime
        return whole

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        if self.num_left == 0:
            raise KeyboardInterrupt
        self.num_left -= 1
        self.num_pairs += len(rows) * len(columns)
        parts = []
        for grade, rank in enumerate(self.ranks):
            left = self._drawn(f"left {grade}", rows, rank)
            right = self._drawn(f"right {grade}", columns, rank).T
            high = (left >> 16) @ right % self.prime
            parts.append(((high << 16) + (left & 0xFFFF) @ right) % self.prime)
        return numpy.stack(parts)

    def _drawn(self, side: str, numbers: Numbers, count: int) -> Residues:
        each = [draw_residues(0, f"{side} {int(n)}", (count,), self.prime) for n in numbers]
        return numpy.array(each, dtype=numpy.int64).reshape(len(numbers), count)


def bound(value: int) -> UpperBound:
    return UpperBound(Magnitude.of(value), Theorem("Nobody (1900)", "Thm 1", None, ()))


def problem(
    *ranks: int,
    upper: int | None = None,
    grade_uppers: tuple[int, ...] | None = None,
    num_points: tuple[int | None, int | None] = (None, None),
) -> MeasurementProblem:
    return MeasurementProblem(
        split=lambda prime: SumOfProducts(ranks, prime, num_points),
        degree=DEGREE,
        identity={"ranks": ranks},
        upper=None if upper is None else bound(upper),
        grade_uppers=grade_uppers,
    )


@settings(deadline=None, max_examples=25)
@given(
    ranks=st.lists(st.integers(0, 40), min_size=2, max_size=4).map(tuple),
    slack=st.none() | st.integers(0, 30),
)
def test_graded_and_whole_measurements_agree_and_reach_the_rank(
    ranks: tuple[int, ...], slack: int | None
) -> None:
    asked = problem(
        *ranks,
        upper=None if slack is None else sum(ranks) + slack,
        grade_uppers=None if slack is None else tuple(rank + slack for rank in ranks),
    )
    for is_graded in (False, True):
        measured = measure(asked, MeasureOptions(is_graded=is_graded, workers=HERE))
        assert measured.lower == sum(ranks)
        assert measured.is_exact == (slack == 0)
        assert measured.failure_probability <= 1e-6
        for run in measured.runs:
            for minor in run.minors:
                assert len(minor.rows) == len(minor.columns) == minor.size


def test_minors_are_not_zero_and_carry_their_grade_and_bound() -> None:
    asked = problem(3, 0, 5, grade_uppers=(3, 2, 9))
    run = measure(asked, MeasureOptions(is_graded=True, workers=HERE)).best
    assert [minor.size for minor in run.minors] == [3, 0, 5]
    assert [minor.grade for minor in run.minors] == [0, 1, 2]
    assert [minor.upper for minor in run.minors] == [3, 2, 9]
    assert run.samples == (17, 17)
    whole = measure(asked, MeasureOptions(is_graded=False, workers=HERE)).best
    assert [minor.grade for minor in whole.minors] == [None]


def test_a_rank_above_the_first_samples_is_found_by_growing() -> None:
    measured = measure(problem(300), MeasureOptions(workers=HERE))
    assert measured.lower == 300
    assert measured.best.samples == (512, 512)
    assert measured.runs[1].samples == (308, 308)


def test_an_exact_rank_needs_one_prime_and_others_as_many_as_it_takes() -> None:
    exact = measure(problem(5, upper=5), MeasureOptions(workers=HERE))
    assert len(exact.runs) == 1
    once = measure(problem(5), MeasureOptions(workers=HERE, max_failure=1e-3))
    assert [run.prime for run in once.runs] == [16777213]
    often = measure(problem(5), MeasureOptions(workers=HERE, max_failure=0.0, max_primes=3))
    assert [run.prime for run in often.runs] == [16777213, 16777199, 16777183]
    assert often.failure_probability == pytest.approx(
        (6 * DEGREE) ** 3 / (16777213 * 16777199 * 16777183)
    )


def test_given_primes_are_all_used() -> None:
    options = MeasureOptions(primes=(1009, 2**31 - 1, 10007), workers=HERE)
    measured = measure(problem(5, upper=5), options)
    assert [run.prime for run in measured.runs] == [1009, 2**31 - 1, 10007]
    assert [run.matrix_rank for run in measured.runs] == [5, 5, 5]


@pytest.mark.parametrize("points", [(100, 30), (30, 100), (7, 7), (1, 200)])
def test_templates_are_exhausted_and_never_exceeded(points: tuple[int, int]) -> None:
    measured = measure(problem(20, num_points=points), MeasureOptions(workers=HERE))
    assert measured.lower == min(20, *points)
    if measured.lower == min(points):  # so many rows or columns have no larger rank
        assert measured.failure_probability == 0
        assert len(measured.runs) == 1
    else:
        assert measured.best.samples == points


def test_templates_need_not_be_exhausted_where_the_bound_is_met() -> None:
    asked = problem(20, upper=20, num_points=(5000, 5000))
    assert measure(asked, MeasureOptions(workers=HERE)).best.samples == (28, 28)


@pytest.mark.parametrize("is_graded", [False, True])
def test_a_bound_that_is_wrong_is_found_out(is_graded: bool) -> None:
    options = MeasureOptions(workers=HERE, is_graded=is_graded)
    with pytest.raises(MeasurementError, match=r"at least 30 .* more than the upper bound 28"):
        measure(problem(20, 10, upper=28, grade_uppers=(20, 10)), options)


def test_a_wrong_bound_of_one_part_is_found_out() -> None:
    options = MeasureOptions(workers=HERE, is_graded=True)
    with pytest.raises(MeasurementError, match=r"at least 20 .* more than the upper bound 19"):
        measure(problem(20, 10, upper=30, grade_uppers=(19, 11)), options)


def test_grading_is_chosen_where_the_whole_matrix_may_be_large() -> None:
    def is_graded(asked: MeasurementProblem) -> bool:
        return measure(asked, MeasureOptions(workers=HERE)).best.minors[0].grade is not None

    assert not is_graded(problem(2, 3, upper=4096))
    assert is_graded(problem(2, 3, upper=4097))
    assert is_graded(problem(2, 3))
    assert not is_graded(problem(5))


def test_grading_is_refused_where_there_is_one_part() -> None:
    with pytest.raises(MeasurementError, match="this one has 1 part"):
        measure(problem(5), MeasureOptions(is_graded=True))


def test_a_bound_that_does_not_fit_is_refused_after_a_first_look() -> None:
    function = SumOfProducts((600,), 16777213)
    asked = MeasurementProblem(lambda _: function, DEGREE, {}, bound(10**7))
    with pytest.raises(
        TooLargeError,
        match=r"a matrix of 10,000,008 x 10,000,008 .* In the 1,024 MiB allowed, 8,7\d\d x 8,7\d\d "
        r"is the largest that fits. You may make the network smaller, .* separation_rank",
    ):
        measure(asked, MeasureOptions(memory_limit=2**30, workers=HERE))
    assert function.num_pairs == 512**2


def test_a_loose_bound_that_does_not_fit_does_no_harm_to_a_small_rank() -> None:
    measured = measure(problem(100, upper=10**7), MeasureOptions(memory_limit=2**30, workers=HERE))
    assert measured.lower == 100


def test_a_checkpoint_is_offered_where_it_would_help() -> None:
    options = MeasureOptions(memory_limit=10 * 608**2 + 24 * 512**2, workers=HERE)
    with pytest.raises(TooLargeError, match="You may give a checkpoint folder, which keeps"):
        measure(problem(600, upper=600), options)


@pytest.mark.slow
def test_a_bound_of_thousands_of_digits_is_refused_in_few() -> None:
    with pytest.raises(TooLargeError, match=r"about 10\^3000 x .* needs about 10\^6000 entries"):
        measure(problem(600, upper=10**3000), MeasureOptions(workers=HERE))


def test_grading_is_offered_where_it_would_help() -> None:
    asked = problem(600, 3, upper=10**7, grade_uppers=(600, 3))
    options = MeasureOptions(memory_limit=2**30, is_graded=False, workers=HERE)
    with pytest.raises(TooLargeError, match=r"You may measure the graded parts \(is_graded=True\)"):
        measure(asked, options)


def test_what_does_not_fit_even_once_is_refused_at_once() -> None:
    with pytest.raises(TooLargeError, match="2 blocks, the largest of 64 x 64"):
        measure(problem(2, 3), MeasureOptions(memory_limit=1000, is_graded=True))


class Patience:
    """A subject whose function is interrupted after so many tiles, and which counts them."""

    def __init__(self, num_left: int, *ranks: int) -> None:
        self.functions: list[SumOfProducts] = []
        self.num_left = num_left
        self.ranks = ranks

    def split(self, prime: int) -> SplitFunction:
        function = SumOfProducts(self.ranks, prime)
        function.num_left = self.num_left
        self.functions.append(function)
        return function

    @property
    def num_pairs(self) -> int:
        return sum(function.num_pairs for function in self.functions)

    def measure(self, options: MeasureOptions) -> MeasuredRank:
        return measure(MeasurementProblem(self.split, DEGREE, {"ranks": self.ranks}), options)


@pytest.mark.parametrize("is_graded", [False, True])
def test_an_interrupted_measurement_goes_on_where_it_stopped(
    tmp_path: Path, is_graded: bool
) -> None:
    options = MeasureOptions(checkpoint=tmp_path, workers=HERE, is_graded=is_graded)
    undisturbed = Patience(10**9, 150, 20)
    expected = undisturbed.measure(MeasureOptions(workers=HERE, is_graded=is_graded))
    first = Patience(6, 150, 20)
    with pytest.raises(KeyboardInterrupt):
        first.measure(options)
    assert 0 < first.num_pairs < undisturbed.num_pairs
    second = Patience(10**9, 150, 20)
    assert second.measure(options).runs == expected.runs
    assert first.num_pairs + second.num_pairs == undisturbed.num_pairs
    third = Patience(0, 150, 20)
    assert third.measure(options).runs == expected.runs


def test_a_damaged_tile_is_computed_again_and_told(tmp_path: Path) -> None:
    reports: list[Progress] = []
    options = MeasureOptions(checkpoint=tmp_path, workers=HERE, report=reports.append)
    first = Patience(6, 150)
    with pytest.raises(KeyboardInterrupt):
        first.measure(options)
    path = next(tmp_path.rglob("rows 0-64 columns 0-64*.npy"))
    path.write_bytes(path.read_bytes()[:-1])
    second = Patience(10**9, 150)
    assert second.measure(options).lower == 150
    undisturbed = Patience(10**9, 150)
    undisturbed.measure(MeasureOptions(workers=HERE))
    assert first.num_pairs + second.num_pairs == undisturbed.num_pairs + 64**2
    assert [p.what for p in reports if "damaged" in p.what] == [
        f"damaged, computed again: {path.name}"
    ]


def test_a_checkpoint_of_another_measurement_is_refused(tmp_path: Path) -> None:
    measure(problem(3), MeasureOptions(checkpoint=tmp_path, workers=HERE))
    with pytest.raises(CheckpointError, match="its seed is 0, not 1"):
        measure(problem(3), MeasureOptions(checkpoint=tmp_path, seed=1))
    with pytest.raises(CheckpointError, match=r"its ranks is \[3\], not \[4\]"):
        measure(problem(4), MeasureOptions(checkpoint=tmp_path))


def test_tiles_and_eliminations_are_reported() -> None:
    reports: list[Progress] = []
    measure(problem(100), MeasureOptions(report=reports.append, workers=HERE, primes=(16777213,)))
    values = "values modulo 16777213"
    assert reports == [
        Progress(values, 1, 1),
        Progress("eliminations", 1, 1),
        *(Progress(values, done, 3) for done in (1, 2, 3)),
        Progress("eliminations", 1, 1),
    ]


def test_threads_change_nothing() -> None:
    asked = problem(100, 30)
    alone = measure(asked, MeasureOptions(workers=HERE, is_graded=True))
    together = measure(asked, MeasureOptions(workers=Workers(jobs=3), is_graded=True))
    assert alone.runs == together.runs
