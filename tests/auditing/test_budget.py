import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import Budget, Embedding
from rankscope.errors import PlanError


@settings(deadline=None)
@given(
    parameters=st.floats(1e8, 1e12),
    depth=st.integers(1, 200),
    rank=st.none() | st.integers(1, 4000),
    is_total=st.booleans(),
)
def test_width_and_depth_spend_the_budget_and_no_more(
    parameters: float, depth: int, rank: int | None, is_total: bool
) -> None:
    budget = Budget(parameters, Embedding(1000, rank), is_total)
    width = budget.width(depth)
    assert budget.size(depth, width) <= parameters
    # Just beyond: a factorized embedding costs its second factor at once.
    assert budget.size(depth, width * (1 + 1e-9) + 1e-9) > parameters
    assert budget.size(budget.depth(width), width) == pytest.approx(parameters)


def test_without_embedding_the_width_is_the_root() -> None:
    assert Budget(12.0 * 7 * 500**2, Embedding()).width(7) == pytest.approx(500)


@pytest.mark.parametrize(
    ("vocabulary", "rank", "width", "expected"),
    [
        (1000, None, 64, (64, False, 64_000)),
        (50, None, 64, (50, False, 3_200)),
        (1000, 16, 64, (16, True, 16 * 1064)),
        (1000, 64, 64, (64, False, 64_000)),
        (10, 16, 64, (10, False, 640)),
        (None, 16, 64, (16, True, None)),
    ],
)
def test_rank_and_cost_of_an_embedding(
    vocabulary: int | None, rank: int | None, width: int, expected: tuple[int, bool, int | None]
) -> None:
    found = Embedding(vocabulary, rank)
    got = (found.rank_at(width), found.is_factorized_at(width), found.parameters_at(width))
    assert got == expected


@pytest.mark.parametrize("number", [0.0, -1.0, math.nan, math.inf, 1e19])
def test_a_budget_is_a_positive_number(number: float) -> None:
    with pytest.raises(PlanError, match=r"from 49,152 to 1e\+18, got"):
        Budget.of(number, None, Embedding())


def test_a_budget_below_one_block_is_refused() -> None:
    assert Budget.of(49_152, None, Embedding()).width(1) == pytest.approx(64)
    with pytest.raises(PlanError, match=r"49,151 parameters are fewer than 49,152: 49,152 of one"):
        Budget.of(49_151, None, Embedding())


def test_a_total_below_the_embedding_names_both_numbers() -> None:
    with pytest.raises(
        PlanError, match=r"1,000,000 parameters are fewer than 3,265,600: 3,216,448 of the embedd"
    ):
        Budget.of(None, 1_000_000, Embedding(50_257))


def test_a_total_needs_the_vocabulary() -> None:
    with pytest.raises(PlanError, match=r"a total of 1e\+09 parameters .* give the vocabulary"):
        Budget.of(None, 1e9, Embedding())


@pytest.mark.parametrize(("parameters", "total", "count"), [(None, None, 0), (1e9, 1e9, 2)])
def test_exactly_one_budget_is_given(
    parameters: float | None, total: float | None, count: int
) -> None:
    with pytest.raises(PlanError, match=f"got {count} of the two"):
        Budget.of(parameters, total, Embedding(1000))


@pytest.mark.parametrize(
    ("vocabulary", "rank", "message"),
    [
        (0, None, "vocabulary must be at least 1, got 0"),
        (None, -2, "rank must be at least 1, got -2"),
    ],
)
def test_sizes_of_an_embedding_are_positive(
    vocabulary: int | None, rank: int | None, message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        Embedding(vocabulary, rank)
