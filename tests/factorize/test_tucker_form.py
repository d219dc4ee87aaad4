import math
import re

import pytest
import tensorly
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorly.decomposition import partial_tucker
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize import (
    Bonds,
    KeepParameters,
    MaxBond,
    RelativeError,
    decompose_tucker,
    matricized,
)
from rankscope.factorize.tucker import multiply

SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4)
SEEDS = st.integers(0, 999)


def random_tensor(shape: list[int] | tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(*shape, dtype=torch.float64, generator=generator)
    return tensor * 0.7 ** torch.arange(tensor.numel()).reshape(shape).remainder(7)


def tail(tensor: Tensor, position: int, kept: int) -> float:
    """Squares of the singular values of a matricization that are left out."""
    return float(torch.linalg.svdvals(matricized(tensor, position))[kept:].square().sum())


@settings(deadline=None, max_examples=60)
@given(shape=SHAPES, rank=st.integers(1, 4), seed=SEEDS, sweeps=st.integers(0, 3))
def test_the_squared_error_is_at_most_the_sum_of_the_tails(
    shape: list[int], rank: int, seed: int, sweeps: int
) -> None:
    """And so at most the order times the least possible, which no tail exceeds."""
    tensor = random_tensor(shape, seed)
    found = decompose_tucker(tensor, MaxBond(rank), sweeps=sweeps)
    square = float(tensor.square().sum())
    tails = [tail(tensor, position, min(rank, size)) for position, size in enumerate(shape)]
    assert found.relative_error <= found.error_bound + 1e-12
    assert found.error_bound**2 * square <= sum(tails) + 1e-12 * square
    assert found.relative_error**2 * square >= max(tails) - 1e-12 * square
    if sweeps == 0:
        assert found.relative_error == pytest.approx(found.error_bound, abs=1e-12)
    assert found.bonds == tuple(min(rank, size) for size in shape)
    assert found.num_parameters == math.prod(found.bonds) + sum(
        size * kept for size, kept in zip(shape, found.bonds, strict=True)
    )


@settings(deadline=None, max_examples=40)
@given(shape=SHAPES, error=st.floats(1e-13, 0.99), seed=SEEDS)
def test_an_error_is_met(shape: list[int], error: float, seed: int) -> None:
    tensor = random_tensor(shape, seed)
    found = decompose_tucker(tensor, RelativeError(error))
    assert found.relative_error <= error
    difference = float((found.to_dense() - tensor).norm() / tensor.norm())
    assert found.relative_error == pytest.approx(difference, abs=1e-13)


def test_a_tensor_of_low_ranks_is_found_with_just_these() -> None:
    core = random_tensor((2, 3, 2), 0)
    factors = [random_tensor((size, rank), size) for size, rank in ((7, 2), (6, 3), (5, 2))]
    tensor = torch.einsum("abc,ia,jb,kc->ijk", core, *factors)
    found = decompose_tucker(tensor, RelativeError(1e-10))
    assert found.bonds == (2, 3, 2)


def test_only_chosen_positions_get_a_factor() -> None:
    tensor = random_tensor((6, 5, 3, 3), 1)
    found = decompose_tucker(tensor, Bonds((2, 4)), positions=(1, 0))
    assert {place: tuple(factor.shape) for place, factor in found.factors.items()} == {
        0: (6, 4),
        1: (5, 2),
    }
    assert found.core.shape == (4, 2, 3, 3)
    assert found.num_parameters == 4 * 2 * 9 + 6 * 4 + 5 * 2
    dense = torch.einsum("abhw,ia,jb->ijhw", found.core, found.factors[0], found.factors[1])
    torch.testing.assert_close(found.to_dense(), dense)
    for factor in found.factors.values():
        torch.testing.assert_close(factor.T @ factor, torch.eye(factor.shape[1]).double())


@pytest.mark.parametrize("seed", range(4))
def test_errors_are_not_worse_than_those_of_tensorly(seed: int) -> None:
    tensor = random_tensor((8, 7, 3, 3), seed)
    (core, factors), _ = partial_tucker(
        tensor.numpy(), rank=[3, 2], modes=[0, 1], n_iter_max=100, tol=1e-8
    )
    dense = tensorly.tenalg.multi_mode_dot(core, factors, modes=[0, 1])
    theirs = float((torch.from_numpy(dense) - tensor).norm() / tensor.norm())
    ours = decompose_tucker(tensor, Bonds((3, 2)), positions=(0, 1), sweeps=100).relative_error
    # Both stop when sweeps gain little: ours at 0.001 of the squared error.
    assert ours <= theirs * 1.005


def test_ranks_larger_than_the_other_positions_can_fill_keep_their_size() -> None:
    found = decompose_tucker(random_tensor((6, 2, 2), 0), Bonds((6, 1, 1)))
    assert found.core.shape == (6, 1, 1)
    torch.testing.assert_close(found.factors[0].T @ found.factors[0], torch.eye(6).double())


def test_a_share_of_the_parameters_is_never_exceeded() -> None:
    tensor = random_tensor((8, 6, 3, 3), 0)
    found = decompose_tucker(tensor, KeepParameters(0.3), positions=(0, 1))
    # 9 r s + 8 r + 6 s is at most 0.3 * 432 = 129 for (3, 3), and not for (4, 3) or (3, 4).
    assert (found.bonds, found.num_parameters) == ((3, 3), 123)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_short_numbers_and_extreme_scales_are_no_trouble(dtype: torch.dtype) -> None:
    tensor = (random_tensor((4, 3, 5), 0) * 1e-4).to(dtype)
    found = decompose_tucker(tensor, MaxBond(5))
    assert found.core.dtype == torch.float64
    assert found.relative_error < 1e-13
    tiny = decompose_tucker(random_tensor((4, 3, 5), 0) * 1e-200, MaxBond(2))
    whole = decompose_tucker(random_tensor((4, 3, 5), 0), MaxBond(2))
    assert tiny.relative_error == pytest.approx(whole.relative_error, rel=1e-9)


def test_zero_has_no_error() -> None:
    found = decompose_tucker(torch.zeros(3, 4, 2), MaxBond(2))
    assert (found.bonds, found.relative_error, found.error_bound) == ((2, 2, 2), 0.0, 0.0)


def test_multiplying_a_position_is_a_sum_over_it() -> None:
    tensor, matrix = random_tensor((2, 3, 4), 0), random_tensor((5, 3), 1)
    expected = torch.einsum("abc,db->adc", tensor, matrix)
    torch.testing.assert_close(multiply(tensor, matrix, 1), expected)


@pytest.mark.parametrize("positions", [(), (0, 0), (0, 3), (-1,)])
def test_positions_that_do_not_fit_are_refused(positions: tuple[int, ...]) -> None:
    with pytest.raises(DecompositionError, match=re.escape(f"at least one, got {positions}.")):
        decompose_tucker(torch.ones(2, 2, 2), MaxBond(1), positions=positions)


def test_negative_sweeps_are_refused() -> None:
    with pytest.raises(DecompositionError, match="sweeps must be at least 0, got -1"):
        decompose_tucker(torch.ones(2, 2, 2), MaxBond(1), sweeps=-1)
