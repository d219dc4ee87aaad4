"""Which degree is best for a budget."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import (
    BEST_REAL_DEGREE,
    best_chain_degree,
    best_degree,
    budgets_where_three_loses,
    growth_per_matrix,
)


def test_at_real_depth_e_is_best_and_three_among_integers() -> None:
    assert math.isclose(BEST_REAL_DEGREE, math.e)
    assert all(growth_per_matrix(math.e) > growth_per_matrix(d / 100) for d in range(110, 271))
    assert all(growth_per_matrix(math.e) > growth_per_matrix(d / 100) for d in range(272, 900))
    assert max(range(2, 100), key=growth_per_matrix) == 3
    # A chain layer of degree 2m - 1 holds m matrices.
    assert max(range(2, 100), key=lambda m: math.log(2 * m - 1) / m) == 2


def test_at_integer_depth_three_can_lose() -> None:
    eight, ten = best_degree(8), best_degree(10)
    assert (eight.degrees, eight.depths, eight.total_degree) == ((2, 4), (4, 2), 16)
    assert (ten.degrees, ten.total_degree) == ((2,), 32)
    assert {8, 10} <= set(budgets_where_three_loses(12))


@settings(deadline=None)
@given(budget=st.integers(2, 200))
def test_the_best_degree_beats_every_other(budget: int) -> None:
    best = max(d ** (budget // d) for d in range(2, budget + 1))
    choice = best_degree(budget)
    assert choice.total_degree == best
    assert choice.degrees == tuple(d for d in range(2, budget + 1) if d ** (budget // d) == best)
    chain = max((2 * m - 1) ** (budget // m) for m in range(2, budget + 1))
    assert best_chain_degree(budget).total_degree == chain
    assert choice.to_dict()["total_degree"] == best


def test_three_loses_at_twelve_budgets_and_no_others() -> None:
    # From 38 on 3^((B - 2) / 3) exceeds 2^(B / 2), which no other degree exceeds.
    assert all(38 * growth_per_matrix(3) - 2 * growth_per_matrix(3) > 38 * growth_per_matrix(d)
               for d in (2, 4, 5))  # fmt: skip
    losing = tuple(b for b in range(2, 38) if max(d ** (b // d) for d in (2, *range(4, b + 1)))
                   > 3 ** (b // 3))  # fmt: skip
    assert len(losing) == 12
    assert budgets_where_three_loses(120) == losing


def test_three_loses_at_seven_budgets_of_chains_and_no_others() -> None:
    assert 43 * (math.log(3) / 2 - math.log(5) / 3) > math.log(3) / 2
    losing = [b for b in range(2, 120) if 3 not in best_chain_degree(b).degrees]
    assert losing == [6 * j + 3 for j in range(7)]
    assert all(5 ** (2 * j + 1) > 3 ** (3 * j + 1) for j in range(7))


def test_a_budget_without_a_layer_is_refused() -> None:
    for function in (best_degree, best_chain_degree):
        with pytest.raises(BoundError, match="budget must be at least 2, got 1"):
            function(1)
    with pytest.raises(BoundError, match="largest must be at least 2, got 0"):
        budgets_where_three_loses(0)
