"""The integer program against trying everything."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.compression import (
    GreedyLadder,
    Option,
    choose,
    lower_hull,
    pareto_front,
)

options = st.lists(
    st.builds(Option, st.integers(0, 30), st.integers(0, 1000).map(lambda n: n / 64)),
    min_size=1,
    max_size=5,
)
lists_of_options = st.lists(options, min_size=1, max_size=4)


def total(lists: list[list[Option]], picks: tuple[int, ...]) -> tuple[int, float]:
    chosen = [choices[n] for choices, n in zip(lists, picks, strict=True)]
    return sum(option.cost for option in chosen), sum(option.score for option in chosen)


@settings(deadline=None, max_examples=50)
@given(lists=lists_of_options, budget=st.integers(0, 80))
def test_no_choice_within_the_budget_is_better(lists: list[list[Option]], budget: int) -> None:
    everything = [total(lists, picks) for picks in product(*(range(len(c)) for c in lists))]
    within = [score for cost, score in everything if cost <= budget]
    choice = choose(lists, budget)
    if not within:
        assert choice is None
        return
    assert choice is not None
    assert (choice.cost, choice.score) == total(lists, choice.picks)
    assert choice.cost <= budget
    assert choice.score == pytest.approx(min(within), abs=1e-9)
    assert choice.is_proved


@settings(deadline=None, max_examples=50)
@given(lists=lists_of_options, spare=st.integers(0, 60))
def test_greedy_keeps_the_budget_and_is_never_better(lists: list[list[Option]], spare: int) -> None:
    budget = sum(min(option.cost for option in choices) for choices in lists) + spare
    cost, score = total(lists, tuple(GreedyLadder(lists).picks(budget)))
    choice = choose(lists, budget)
    assert cost <= budget
    assert choice is not None
    assert choice.score <= score


@settings(deadline=None, max_examples=50)
@given(lists=lists_of_options, budgets=st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_a_ladder_takes_the_best_gain_that_fits_and_bounds_every_choice(
    lists: list[list[Option]], budgets: list[int]
) -> None:
    ladder = GreedyLadder(lists)
    hulls = [lower_hull(choices) for choices in lists]
    for spare in budgets:
        left, steps, closed = spare, [0] * len(lists), set[int]()
        while True:
            gains = {
                which: (
                    (lists[which][hull[step]].score - lists[which][hull[step + 1]].score)
                    / (lists[which][hull[step + 1]].cost - lists[which][hull[step]].cost)
                )
                for which, (hull, step) in enumerate(zip(hulls, steps, strict=True))
                if which not in closed and step + 1 < len(hull)
            }
            if not gains:
                break
            which = max(gains, key=lambda each: gains[each])  # of equals the first
            hull, step = hulls[which], steps[which]
            price = lists[which][hull[step + 1]].cost - lists[which][hull[step]].cost
            if price > left:
                closed.add(which)
            else:
                left -= price
                steps[which] += 1
        picks = ladder.picks(ladder.cheapest + spare)
        assert picks == [hull[step] for hull, step in zip(hulls, steps, strict=True)]
        best = choose(lists, ladder.cheapest + spare)
        assert best is not None
        assert ladder.lower_bound(ladder.cheapest + spare) <= best.score + 1e-9


@settings(deadline=None, max_examples=50)
@given(choices=options)
def test_what_is_dropped_is_beaten_by_something_kept(choices: list[Option]) -> None:
    kept = pareto_front(choices)
    for option in choices:
        assert any(
            choices[n].cost <= option.cost and choices[n].score <= option.score for n in kept
        )
    assert set(lower_hull(choices)) <= set(kept)


def test_costs_of_billions_are_kept_to_the_unit() -> None:
    lists = [[Option(0, 1.0 + n / 7), Option(10**11 + n, 0.0)] for n in range(10)]
    budget = 4 * 10**11 + 14
    everything = [total(lists, picks) for picks in product((0, 1), repeat=10)]
    choice = choose(lists, budget)
    assert choice is not None
    assert choice.cost <= budget
    assert choice.score == pytest.approx(
        min(score for cost, score in everything if cost <= budget), abs=1e-9
    )


def test_when_time_is_up_the_greedy_choice_is_given_with_its_gap() -> None:
    lists = [[Option(0, 3.0), Option(2, 0.0)], [Option(0, 2.0), Option(2, 0.0)]]
    choice = choose(lists, 3, max_seconds=0.0)
    assert choice is not None
    assert choice.picks == (1, 0)
    assert choice.gap >= 0
    assert choice.score == 2.0


def test_nothing_to_choose_is_a_choice() -> None:
    choice = choose([], 0)
    assert choice is not None
    assert (choice.picks, choice.cost, choice.score) == ((), 0, 0.0)
    assert choose([], -1) is None


@pytest.mark.slow
def test_as_many_weights_as_a_large_model_has_are_solved_to_the_end() -> None:
    lists = [
        [
            Option(cost=(n + 3) * step * 1000 + n, score=math.exp(-step * (1 + n % 7) / 30))
            for step in range(1, 25)
        ]
        for n in range(60)
    ]
    cheapest = sum(options[0].cost for options in lists)
    dearest = sum(options[-1].cost for options in lists)
    budget = (3 * cheapest + dearest) // 4
    choice = choose(lists, budget)
    assert choice is not None
    assert choice.cost <= budget
    assert choice.score <= total(lists, tuple(GreedyLadder(lists).picks(budget)))[1]
    assert choice.is_proved
