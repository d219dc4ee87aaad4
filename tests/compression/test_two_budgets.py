"""Two budgets at once against trying everything."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.compression import (
    Budget,
    Option,
    SecondBudget,
    Unit,
    choose_within_both,
    plan_compression,
)
from rankscope.compression.choosing import RELATIVE_GAP
from rankscope.errors import CompressionError

triples = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 1000)), min_size=1, max_size=5
)


@settings(deadline=None, max_examples=50)
@given(
    lists=st.lists(triples, min_size=1, max_size=4), one=st.integers(0, 80), two=st.integers(0, 80)
)
def test_no_choice_within_both_budgets_is_better(
    lists: list[list[tuple[int, int, int]]], one: int, two: int
) -> None:
    options = [[Option(cost, score / 64) for cost, _, score in choices] for choices in lists]
    second = SecondBudget([[cost for _, cost, _ in choices] for choices in lists], two)
    within = [
        sum(score for _, _, score in picks) / 64
        for picks in product(*lists)
        if sum(cost for cost, _, _ in picks) <= one and sum(cost for _, cost, _ in picks) <= two
    ]
    choice = choose_within_both(options, one, second)
    assert (choice is None) == (not within)
    if choice is not None:
        assert choice.cost <= one
        assert second.total(choice.picks) <= two
        assert choice.score - choice.gap <= min(within) + 1e-9
        assert choice.score <= min(within) * (1 + RELATIVE_GAP) + 1e-9


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3))


def test_a_plan_keeps_both_budgets() -> None:
    example = torch.zeros(1, 8, 9, 9)
    budget = Budget(0.5, Unit.PARAMETERS, Budget(0.3, Unit.FLOPS))
    plan = plan_compression(network(), budget, example=example)
    assert plan.kept.parameters <= 0.5 * plan.dense.parameters
    assert plan.kept.flops <= 0.3 * plan.dense.flops
    assert plan.to_dict()["also"] == {"flops": 0.3}


def test_budgets_that_contradict_each_other_are_refused() -> None:
    same = Budget(0.5, Unit.BYTES, Budget(0.4, Unit.BYTES))
    with pytest.raises(CompressionError, match="in different units, got 2: bytes, bytes"):
        plan_compression(network(), same)
    without = Budget(0.5, Unit.BYTES, Budget(0.4, Unit.FLOPS))
    with pytest.raises(CompressionError, match="A budget in flops depends on the inputs"):
        plan_compression(network(), without)
    small = Budget(0.5, Unit.PARAMETERS, Budget(0.01, Unit.FLOPS))
    with pytest.raises(CompressionError, match=r"keep=0.01 allows .* flops"):
        plan_compression(network(), small, example=torch.zeros(1, 8, 9, 9))
