import math

import pytest
import tensorly
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorly.decomposition import parafac
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize import (
    Bonds,
    CPOptions,
    KeepParameters,
    MaxBond,
    RelativeError,
    component_sum,
    decompose_cp,
)
from rankscope.factorize import truncation as computing

SHAPES = st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple)
QUICK = CPOptions(num_starts=1, max_sweeps=20, max_iterations=5)


def random_tensor(shape: tuple[int, ...], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


@settings(deadline=None, max_examples=25)
@given(
    shape=SHAPES,
    num_components=st.integers(1, 6),
    seed=st.integers(0, 99),
    scale=st.sampled_from([1e-200, 1.0, 1e200]),
)
def test_the_error_is_the_one_made_and_no_norm_exceeds_what_is_left(
    shape: tuple[int, ...], num_components: int, seed: int, scale: float
) -> None:
    tensor = random_tensor(shape, seed)
    found = decompose_cp(tensor * scale, MaxBond(num_components), options=QUICK)
    kept = min(num_components, math.prod(shape) // max(shape))
    assert found.bonds == (kept,)
    assert [tuple(factor.shape) for factor in found.factors] == [(size, kept) for size in shape]
    assert found.num_parameters == kept * sum(shape)
    error = float((found.to_dense() / scale - tensor).norm() / tensor.norm())
    assert found.relative_error == pytest.approx(error, abs=1e-12)
    assert found.relative_error <= 1
    for factor in found.factors:
        torch.testing.assert_close(factor.norm(dim=0), found.factors[0].norm(dim=0))


def test_entries_are_sums_of_products() -> None:
    first, second, third = (random_tensor((size, 2), size) for size in (3, 4, 5))
    expected = torch.einsum("as,bs,cs->abc", first, second, third)
    torch.testing.assert_close(component_sum((first, second, third)), expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("shape", "num_components"), [((8, 7, 5), 4), ((16, 16, 9), 10)])
def test_errors_are_not_worse_than_those_of_tensorly(
    shape: tuple[int, ...], num_components: int, seed: int
) -> None:
    tensor = random_tensor(shape, seed)
    theirs = parafac(tensor.numpy(), num_components, init="random", random_state=seed)
    dense = torch.from_numpy(tensorly.cp_to_tensor(theirs))
    error = float((dense - tensor).norm() / tensor.norm())
    # Both end in one of many minima; these differ by little.
    assert decompose_cp(tensor, MaxBond(num_components)).relative_error <= 1.01 * error


@settings(deadline=None, max_examples=12)
@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=3).map(tuple),
    error=st.sampled_from([1e-12, 0.1, 0.5, 0.9]),
    seed=st.integers(0, 99),
)
def test_an_error_is_met(shape: tuple[int, ...], error: float, seed: int) -> None:
    found = decompose_cp(random_tensor(shape, seed), RelativeError(error), options=QUICK)
    assert found.relative_error <= error


def test_an_error_is_met_with_the_fewest_components_where_these_are_known() -> None:
    matrix = torch.diag(torch.tensor([4.0, 2.0, 1.0, 0.5, 0.25]))
    square = 4.0**2 + 2**2 + 1 + 0.25 + 0.0625
    for kept, missing in ((1, 5.3125), (2, 1.3125), (3, 0.3125), (4, 0.0625)):
        error = math.sqrt(missing / square) * 1.001
        assert decompose_cp(matrix, RelativeError(error)).bonds == (kept,)


def test_a_share_of_the_parameters_is_never_exceeded() -> None:
    found = decompose_cp(random_tensor((6, 5, 9), 0), KeepParameters(0.5), options=QUICK)
    assert found.num_components == int(0.5 * 270) // 20
    with pytest.raises(DecompositionError, match="13 parameters, but bonds of size 1 need 20"):
        decompose_cp(random_tensor((6, 5, 9), 0), KeepParameters(0.05))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_short_numbers_are_computed_in_float64(dtype: torch.dtype) -> None:
    found = decompose_cp(random_tensor((3, 4, 2), 0).to(dtype), MaxBond(8))
    assert found.factors[0].dtype == torch.float64
    assert found.relative_error < 1e-13


def test_large_tensors_get_factors_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "MAX_DOUBLE_ENTRIES", 10)
    assert decompose_cp(random_tensor((3, 4, 2), 0), MaxBond(1)).factors[0].dtype == torch.float32


def test_the_same_seed_gives_the_same_sum() -> None:
    first, again = (decompose_cp(random_tensor((4, 5, 3), 0), MaxBond(3)) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first.factors, again.factors, strict=True))


def test_zero_has_no_error() -> None:
    found = decompose_cp(torch.zeros(3, 4, 2), Bonds((3,)))
    assert (found.bonds, found.relative_error, found.largest_component_norm) == ((3,), 0.0, 0.0)
    assert decompose_cp(torch.zeros(3, 4), RelativeError(0.5)).bonds == (1,)


def test_a_vector_is_refused() -> None:
    with pytest.raises(DecompositionError, match="decompose_cp needs a tensor of order 2 or more"):
        decompose_cp(torch.ones(3), MaxBond(1))
