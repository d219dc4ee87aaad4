"""Statements follow from rows, and from nothing else."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.lab.experiments import (
    Claims,
    Interval,
    Pair,
    Row,
    Score,
    Statement,
    Verdict,
    best_rows,
    correlation_statement,
    headline,
    judge,
    statements_of,
)

LOSS = Score("loss", "nats", baseline="baseline-x")
PLAIN = Score("loss", "nats")
NUMBERS = st.lists(st.floats(-100, 100), min_size=2, max_size=6)


def rows_of(setting: str, values: Sequence[float], **columns: float | str) -> list[Row]:
    return [
        {"setting": setting, "seed": seed, "loss": value, **columns}
        for seed, value in enumerate(values)
    ]


BASELINE: Row = {"setting": "baseline-x", "seed": None, "baseline": "x", "loss": 2.0}


@given(first=NUMBERS, second=NUMBERS)
def test_a_pair_is_decided_where_the_interval_of_its_differences_excludes_zero(
    first: list[float], second: list[float]
) -> None:
    rows = [*rows_of("one", first), *reversed(rows_of("other", second))]
    statement = judge(Pair("one against other", "one", "other", PLAIN), rows)
    differences = [a - b for a, b in zip(first, second, strict=False)]
    interval = Interval.of(differences, seeds=len(differences))
    assert statement.seeds == len(differences)
    assert statement.difference == pytest.approx(interval.mean)
    assert statement.half_width == pytest.approx(interval.half_width)
    is_decided = abs(interval.mean) > interval.half_width
    assert statement.verdict is (Verdict.DECIDED if is_decided else Verdict.UNDECIDED)
    if is_decided:
        assert ("better" if interval.mean < 0 else "worse") in str(statement)


def test_differences_are_paired_by_seed_and_not_of_means() -> None:
    rows = [*rows_of("one", [1.0, 5.0, 9.0]), *rows_of("other", [1.1, 5.12, 9.1])]
    pair = Pair("one against other", "one", "other", PLAIN)
    assert judge(pair, rows).verdict is Verdict.DECIDED
    moved = [*rows_of("one", [5.0, 9.0, 1.0]), *rows[3:]]
    assert judge(pair, moved).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("is_lower_better", [True, False])
def test_a_pair_below_its_baseline_decides_nothing(*, is_lower_better: bool) -> None:
    sign = 1 if is_lower_better else -1
    score = Score("loss", "nats", is_lower_better=is_lower_better, baseline="baseline-x")
    pair = Pair("one against other", "one", "other", score)

    def judged(best: float) -> Statement:
        one = [sign * value for value in (best, best + 0.01)]
        other = [sign * value for value in (best + 1, best + 1.01)]
        baseline: Row = {**BASELINE, "loss": sign * 2.0}
        return judge(pair, [*rows_of("one", one), *rows_of("other", other), baseline])

    assert judged(1.9).verdict is Verdict.DECIDED
    statement = judged(2.1)
    assert statement.verdict is Verdict.BELOW
    assert str(statement).endswith(
        f"the better one has {sign * 2.105:.4g}, baseline-x {sign * 2:g}: "
        "not decided: below the baseline."
    )


def test_nothing_is_decided_before_the_baseline_is_there_or_by_single_runs() -> None:
    pair = Pair("one against other", "one", "other", LOSS)
    rows = [*rows_of("one", [1.0, 1.1]), *rows_of("other", [3.0, 3.1])]
    assert judge(pair, rows).verdict is Verdict.MISSING
    assert judge(pair, [*rows, BASELINE]).verdict is Verdict.DECIDED
    assert judge(pair, [BASELINE]).verdict is Verdict.MISSING
    single = judge(pair, [*rows_of("one", [1.0]), *rows_of("other", [3.0]), BASELINE])
    assert (single.verdict, single.difference, single.half_width) == (Verdict.SINGLE, -2.0, None)


def test_nothing_is_decided_before_all_seeds_are_there() -> None:
    pair = Pair("it", "one", "two", PLAIN)
    rows = [*rows_of("one", [1, 1.1]), *rows_of("two", [2, 2.1, 2.2])]
    statement = judge(pair, rows, seeds=3)
    assert (statement.verdict, statement.seeds) == (Verdict.UNFINISHED, 2)
    assert statement.detail == "-1 nats with 2 of 3 seeds"
    assert judge(pair, rows, seeds=2).verdict is Verdict.DECIDED
    claims = Claims("Which?", (pair,))
    assert statements_of(claims, rows, seeds=3) == (statement,)
    assert headline(claims, rows, seeds=3) == (
        "It: -1 nats with 2 of 3 seeds: not decided yet: rows are missing. "
        "In all: 1 not decided yet: rows are missing."
    )


def test_a_number_of_the_row_and_a_threshold_are_compared_with_too() -> None:
    score = Score("loss", "nats", baseline=1.5, why="a coin has")
    rows = rows_of("one", [1.0, 1.2], published=2.0)
    statement = judge(Pair("one against the published", "one", ":published", score), rows)
    assert statement.difference == pytest.approx(-0.9)
    worse = rows_of("one", [1.6, 1.7], published=2.0)
    assert "a coin has 1.5" in str(judge(Pair("it", "one", ":published", score), worse))


def test_the_best_is_of_all_rows_and_beside_the_best_baseline() -> None:
    rows = [*rows_of("one", [3.0, 1.0]), *rows_of("two", [1.5, 1.7]), BASELINE]
    (statement,) = best_rows(PLAIN, rows)
    assert str(statement) == (
        "Best loss: 1.6 nats (two, best of 2 settings); the best baseline has 2 (baseline-x), "
        "0.4 behind."
    )
    assert best_rows(PLAIN, [BASELINE]) == ()
    (statement,) = best_rows(replace(PLAIN, prefix="on"), rows)
    assert statement.detail.startswith("2 nats (one); the best baseline")
    # Percentages differ by points.
    points = Score("loss", "points")
    assert best_rows(points, rows)[0].detail.startswith("1.6 percent (two, ")
    assert " points over 2 seeds" in judge(Pair("it", "one", "two", points), rows).detail


def test_differences_that_only_rounding_leaves_are_none() -> None:
    rows = [*rows_of("one", [0.1 + 0.2, 1.0]), *rows_of("two", [0.3, 1.0])]
    assert judge(Pair("it", "one", "two", PLAIN), rows).detail.startswith("+0 ± ")


@pytest.mark.parametrize("is_claimed_better", [True, False])
def test_a_decided_pair_is_held_against_the_hypothesis(*, is_claimed_better: bool) -> None:
    rows = [*rows_of("one", [1, 1.1]), *rows_of("two", [2, 2.1]), *rows_of("three", [0, 3])]
    lower = Pair("lower", "one", "two", PLAIN, is_claimed_better)
    assert judge(lower, rows).is_as_claimed is is_claimed_better
    higher = replace(lower, score=replace(PLAIN, is_lower_better=False))
    assert judge(higher, rows).is_as_claimed is not is_claimed_better
    # Nothing is as claimed that is not decided, or of which nothing is claimed.
    silent = replace(lower, is_claimed_better=None)
    open_pair = replace(lower, second="three")
    below = replace(lower, score=replace(PLAIN, baseline=0.5, why="a table"))
    for pair in (silent, open_pair, below):
        assert judge(pair, rows).is_as_claimed is None
    assert judge(below, rows).verdict is Verdict.BELOW
    line = headline(Claims("Which?", (lower, silent, open_pair)), rows)
    assert f": decided, {'' if is_claimed_better else 'not '}as claimed. In all: " in line
    assert line.endswith(f"2 decided ({int(is_claimed_better)} of 1 as claimed), 1 undecided.")


def test_a_headline_counts_verdicts_and_shows_what_decides() -> None:
    pairs = (Pair("a", "one", "two", PLAIN), Pair("b", "one", "three", PLAIN))
    rows = [*rows_of("one", [1, 1.1]), *rows_of("two", [0.0, 3.0]), *rows_of("three", [2, 2.1])]
    claims = Claims("Which?", pairs, (PLAIN,))
    line = headline(claims, rows)
    assert line.startswith("B: -1 ± ")
    assert line.endswith(", better: decided. In all: 1 decided, 1 undecided.")
    assert len(statements_of(claims, rows)) == 3
    # What the hypothesis speaks of, be it undecided.
    asked = replace(claims, pairs=(replace(pairs[0], is_claimed_better=True), pairs[1]))
    assert headline(asked, rows).startswith("A: -0.45 ± ")
    assert headline(claims, []) == "A: not computed yet. In all: 2 not computed yet."
    assert headline(Claims("What?", facts=lambda _: ()), rows) == "Not computed yet"
    answered = replace(
        claims, facts=lambda _: (Statement("all", Verdict.FACT, "as argued"),), answer="all"
    )
    assert headline(answered, rows) == "All: as argued. In all: 1 decided, 1 undecided."
    assert headline(replace(answered, pairs=()), rows) == "All: as argued."


def test_a_correlation_has_to_be_above_zero_and_above_what_is_there_anyway() -> None:
    def said(found: list[float], beside: list[float], **options: bool) -> Statement:
        return correlation_statement("it", found, beside, "the loss", **options)

    ahead = said([0.8, 0.82, 0.81], [0.1, 0.1, 0.13], is_claimed=True)
    assert (ahead.verdict, ahead.is_as_claimed, ahead.seeds) == (Verdict.DECIDED, True, 3)
    assert ahead.detail.startswith("+0.81 ± 0.025 over 3 seeds; minus the loss (+0.11): +0.70 ± ")
    # As close as the loss, or less; nearly always closer; closer, but not above zero.
    assert said([0.8, 0.82], [0.8, 0.82]).verdict is Verdict.BELOW
    assert said([0.8, 0.82], [0.9, 0.9]).verdict is Verdict.BELOW
    assert said([0.8, 0.82, 0.81], [0.1, 0.1, 0.8]).verdict is Verdict.UNDECIDED
    assert said([0.0, 0.3], [-0.9, -0.6]).verdict is Verdict.UNDECIDED
    # Against it, whatever the loss does.
    against = said([-0.8, -0.82], [-0.8, -0.82], is_claimed=True)
    assert (against.verdict, against.is_as_claimed) == (Verdict.DECIDED, False)
    assert said([-0.8, -0.82], [0.8, 0.82]).is_as_claimed is None
    assert said([0.8], [0.1]).verdict is Verdict.SINGLE
    assert said([], []).verdict is Verdict.MISSING
