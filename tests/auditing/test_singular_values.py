"""Singular values against the direct decomposition in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import matrix_spectrum
from rankscope.auditing.spectra import Triangle, computation_error, working_memory

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn)
SIZES = st.integers(1, 30)


def random_matrix(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.slow
@settings(deadline=None)
@given(rows=SIZES, columns=SIZES, dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99))
def test_values_are_exact_to_the_stated_precision(
    rows: int, columns: int, dtype: torch.dtype, seed: int
) -> None:
    matrix = random_matrix(rows, columns, seed).to(dtype)
    found = torch.from_numpy(matrix_spectrum(matrix).values)
    expected = torch.linalg.svdvals(matrix.double())
    error = computation_error(dtype, min(rows, columns)) * expected[0]
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= float(error)


def test_long_matrices_are_summed_from_all_their_pieces() -> None:
    matrix = random_matrix(5000, 3, 0)
    expected = torch.linalg.svdvals(matrix.double())
    for view in (matrix, matrix.T):
        torch.testing.assert_close(torch.from_numpy(matrix_spectrum(view).values), expected)


@settings(deadline=None)
@given(rank=st.integers(1, 5), dtype=st.sampled_from(DTYPES[:4]), seed=st.integers(0, 99))
def test_rounding_of_the_entries_adds_no_rank(rank: int, dtype: torch.dtype, seed: int) -> None:
    exact = random_matrix(40, rank, seed).double() @ random_matrix(rank, 30, seed + 1).double()
    spectrum = matrix_spectrum(exact.to(dtype))
    assert (spectrum.values > spectrum.rounding).sum() <= rank


@settings(deadline=None)
@given(first=SIZES, inner=SIZES, last=SIZES, seed=st.integers(0, 99))
def test_a_product_is_decomposed_without_being_formed(
    first: int, inner: int, last: int, seed: int
) -> None:
    left, right = random_matrix(first, inner, seed), random_matrix(last, inner, seed + 1)
    found = Triangle.of(left).times(Triangle.of(right))
    expected = torch.linalg.svdvals(left.double() @ right.double().T)[: min(first, inner, last)]
    torch.testing.assert_close(torch.from_numpy(found.values), expected, rtol=0, atol=1e-11)
    assert found.shape == (first, last)
    assert found.inner_size == inner


def test_a_random_product_looks_random_and_not_like_one_matrix_of_its_shape() -> None:
    left, right = random_matrix(300, 60, 0), random_matrix(300, 60, 1)
    row = Triangle.of(left).times(Triangle.of(right)).to_row("")
    whole = matrix_spectrum(left @ right.T).to_row("")
    assert row.outliers <= 2
    assert row.random_distance < 0.06
    assert whole.numeric_rank == row.numeric_rank == row.num_values == 60
    # Of a 300 x 300 matrix, four values of five would be missing.
    assert whole.random_distance > 0.7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_memory_grows_with_the_matrix(dtype: torch.dtype) -> None:
    sizes = [working_memory(size, size, dtype) for size in (10, 100, 1000)]
    assert sizes == sorted(sizes)
    assert sizes[2] >= 2 * 8 * 1000**2
