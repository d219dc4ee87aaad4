from dataclasses import replace

import pytest

from rankscope.rank import MeasuredRank, Minor, Run
from rankscope.theorem import Magnitude, Theorem, UpperBound


def run(prime: int, *sizes: tuple[int, int | None]) -> Run:
    minors = [
        Minor(grade, tuple(range(size)), tuple(range(size)), upper)
        for grade, (size, upper) in enumerate(sizes)
    ]
    return Run(prime, 0, tuple(minors), (8, 9))


def upper(value: int) -> UpperBound:
    return UpperBound(Magnitude.of(value), Theorem("Nobody (1900)", "Thm 1", None, ()))


def test_only_parts_below_their_bound_may_fail() -> None:
    assert run(101, (3, 3), (2, 4), (1, None)).failure_probability(5) == (3 + 2) * 5 / 101
    assert run(101, (3, 3)).failure_probability(5) == 0
    assert run(101, (50, None)).failure_probability(5) == 1


def test_nothing_is_claimed_where_nothing_was_drawn() -> None:
    assert run(101, (3, None)).failure_probability(0) == 1
    assert run(101, (3, 3)).failure_probability(0) == 0


def test_agreeing_primes_multiply_and_smaller_ranks_do_not_count() -> None:
    measured = MeasuredRank((run(101, (2, 4)), run(103, (3, 4)), run(107, (3, 4))), None, 1, 0.0)
    assert measured.lower == 3
    assert measured.best.prime == 103
    assert measured.failure_probability == pytest.approx(4 / 103 * 4 / 107)


def test_a_rank_at_its_bound_is_exact() -> None:
    measured = MeasuredRank((run(101, (2, None)),), upper(2), 1, 0.0)
    assert measured.is_exact
    assert measured.failure_probability == 0
    assert str(measured) == "separation rank 2 exactly, for almost all weights"


def test_a_rank_says_how_it_was_obtained() -> None:
    measured = MeasuredRank((run(101, (2, None)),), upper(1234), 1, 0.0)
    assert str(measured) == (
        "separation rank >= 2 <= 1,234 for almost all weights; more than 2 with probability at "
        "most 3.0e-02, unless every larger minor of the sample vanishes identically modulo 101"
    )
    plain = measured.to_dict()
    assert plain["prime"] == [101]
    assert plain["samples"] == [8, 9]
    assert plain["upper"] == 1234
    assert plain["has_given_weights"] is False


def test_given_weights_are_spoken_of_as_such() -> None:
    measured = MeasuredRank((run(101, (2, None)),), None, 1, 0.0, has_given_weights=True)
    assert str(measured) == (
        "separation rank >= 2 for these weights and almost all others; more than 2 for these "
        "weights with probability at most 3.0e-02, unless every larger minor of the sample "
        "vanishes identically modulo 101"
    )
    exact = replace(measured, upper=upper(2))
    assert str(exact) == "separation rank 2 exactly, for these weights and almost all others"
