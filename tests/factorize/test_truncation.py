import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import DecompositionError
from rankscope.factorize import Bonds, KeepParameters, MaxBond, RelativeError, bond_sizes


def tucker_count(sizes: tuple[int, ...], ranks: tuple[int, ...]) -> int:
    return math.prod(ranks) + sum(size * rank for size, rank in zip(sizes, ranks, strict=True))


@pytest.mark.parametrize(
    ("truncation", "expected"),
    [(MaxBond(4), (3, 4, 4)), (Bonds((9, 1, 5)), (3, 1, 5)), (KeepParameters(100.0), (3, 7, 5))],
)
def test_bonds_are_as_large_as_asked_for_within_their_limits(
    truncation: MaxBond | Bonds | KeepParameters, expected: tuple[int, ...]
) -> None:
    limits = (3, 7, 5)
    found = bond_sizes(
        truncation, limits, lambda ranks: tucker_count(limits, ranks), num_entries=105, who="me"
    )
    assert found == expected


@settings(deadline=None)
@given(
    limits=st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple),
    share=st.floats(0.01, 2.0),
)
def test_the_largest_bonds_that_fit_leave_no_room_for_one_more_each(
    limits: tuple[int, ...], share: float
) -> None:
    def count(ranks: tuple[int, ...]) -> int:
        return tucker_count(limits, ranks)

    entries = 3 * math.prod(limits)
    budget = int(share * entries)
    least = count((1,) * len(limits))
    if least > budget:
        with pytest.raises(DecompositionError, match=f"{budget:,} parameters.*need {least:,}"):
            bond_sizes(KeepParameters(share), limits, count, num_entries=entries, who="me")
        return
    found = bond_sizes(KeepParameters(share), limits, count, num_entries=entries, who="me")
    assert count(found) <= budget
    # Bonds are as even as their limits allow: none is more than one above another one.
    below = [rank for rank, limit in zip(found, limits, strict=True) if rank < limit]
    assert not below or max(found) <= min(below) + 1
    assert found == limits or count(tuple(map(min, ((r + 1) for r in found), limits))) > budget


def test_sizes_that_are_none_are_refused() -> None:
    with pytest.raises(DecompositionError, match="MaxBond needs a size of at least 1, got 0"):
        MaxBond(0)
    with pytest.raises(DecompositionError, match=r"Bonds needs .* at least 1, got \(2, 0\)"):
        Bonds((2, 0))
    with pytest.raises(DecompositionError, match=r"Bonds needs .* at least 1, got \(\)"):
        Bonds(())


@pytest.mark.parametrize("error", [0.0, 1.0, -0.5, math.nan, 1e-14])
def test_errors_outside_of_what_float64_can_tell_are_refused(error: float) -> None:
    with pytest.raises(DecompositionError, match=rf"lie in 1e-13..1, got {error}"):
        RelativeError(error)


@pytest.mark.parametrize("share", [0.0, -1.0, math.inf, math.nan])
def test_shares_that_keep_nothing_or_no_number_are_refused(share: float) -> None:
    with pytest.raises(DecompositionError, match=f"share above 0, got {share}"):
        KeepParameters(share)


def test_another_number_of_bonds_is_refused() -> None:
    with pytest.raises(DecompositionError, match=r"me needs the sizes of 3 bonds, got 2: \(4, 5\)"):
        bond_sizes(Bonds((4, 5)), (9, 9, 9), sum, num_entries=729, who="me")
