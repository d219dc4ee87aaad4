import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.constructions.blocks import (
    JacobianRange,
    branches,
    compose,
    jacobian_range,
)
from rankscope.errors import ConstructionError

depths, widths, seeds = st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**16)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(deadline=None, max_examples=25)
@given(depth=depths, width=widths, seed=seeds, gain=st.floats(0.05, 1.0))
def test_with_skips_singular_values_stay_between_their_bounds(
    depth: int, width: int, seed: int, gain: float
) -> None:
    maps = branches(depth, width, generator=generator(seed), gain=gain)
    inputs = torch.randn(width, generator=generator(seed + 1), dtype=torch.float64)
    found = jacobian_range(maps, inputs, with_skips=True)
    low, high = found.skip_bounds
    assert low - 1e-12 <= found.smallest <= found.largest <= high + 1e-12


@settings(deadline=None, max_examples=25)
@given(depth=depths, width=widths, seed=seeds)
def test_without_skips_norms_only_multiply(depth: int, width: int, seed: int) -> None:
    maps = branches(depth, width, generator=generator(seed))
    inputs = torch.randn(width, generator=generator(seed + 1), dtype=torch.float64)
    found = jacobian_range(maps, inputs, with_skips=False)
    product = torch.tensor(found.branch_norms, dtype=torch.float64).prod()
    assert found.largest <= float(product) + 1e-12


def test_composition_is_its_definition() -> None:
    maps = branches(3, 4, generator=generator(0))
    inputs = torch.randn(2, 4, generator=generator(1), dtype=torch.float64)
    torch.testing.assert_close(
        compose(maps, inputs, with_skips=False), nn.Sequential(*maps)(inputs)
    )
    for branch in maps:
        inputs = inputs + branch(inputs)
    again = torch.randn(2, 4, generator=generator(1), dtype=torch.float64)
    torch.testing.assert_close(compose(maps, again, with_skips=True), inputs)


def test_branches_that_are_zero_leave_the_identity_or_nothing() -> None:
    maps = [torch.zeros_like, torch.zeros_like]
    inputs = torch.arange(3, dtype=torch.float64)
    assert torch.equal(compose(maps, inputs, with_skips=True), inputs)
    assert jacobian_range(maps, inputs, with_skips=True) == JacobianRange(1.0, 1.0, (0.0, 0.0))
    assert jacobian_range(maps, inputs, with_skips=False).largest == 0.0


def test_a_branch_that_changes_the_size_is_refused_under_a_skip() -> None:
    with pytest.raises(ConstructionError, match=r"got shapes \(3,\) and \(2,\)"):
        compose([lambda values: values[:2]], torch.zeros(3), with_skips=True)


def test_sizes_that_are_not_positive_are_refused() -> None:
    with pytest.raises(ConstructionError, match="got 0 and 3"):
        branches(0, 3, generator=generator(0))


def test_the_derivative_is_taken_at_one_vector() -> None:
    with pytest.raises(ConstructionError, match=r"one input vector, got shape \(2, 2\)"):
        jacobian_range([torch.zeros_like], torch.zeros(2, 2), with_skips=True)
