import numpy
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize import (
    Bonds,
    Economy,
    KeepParameters,
    MaxBond,
    Randomized,
    RelativeError,
    SVDMethod,
    decompose_svd,
    left_singular_vectors,
    thin_svd,
)

SIZES = st.integers(1, 12)
SEEDS = st.integers(0, 999)


def random_matrix(rows: int, columns: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    # Singular values that decay, as those of weights do.
    return matrix * 0.8 ** torch.arange(columns)


@settings(deadline=None)
@given(rows=SIZES, columns=SIZES, bond=st.integers(1, 14), seed=SEEDS)
def test_no_matrix_of_the_rank_comes_nearer(rows: int, columns: int, bond: int, seed: int) -> None:
    """Eckart & Young: the squared error is the sum of the other squared singular values."""
    matrix = random_matrix(rows, columns, seed)
    found = decompose_svd(matrix, MaxBond(bond))
    values = torch.linalg.svdvals(matrix)
    kept = min(bond, rows, columns)
    assert found.bonds == (kept,)
    assert found.num_parameters == kept * (rows + columns)
    assert found.relative_error == pytest.approx(
        float(values[kept:].norm() / values.norm()), abs=1e-13
    )
    torch.testing.assert_close(found.singular_values, values[:kept])
    torch.testing.assert_close(found.left.T @ found.left, torch.eye(kept).double())
    torch.testing.assert_close(found.right @ found.right.T, torch.eye(kept).double())
    torch.testing.assert_close(
        float((found.to_dense() - matrix).norm() / matrix.norm()),
        found.relative_error,
        atol=1e-12,
        rtol=0,
    )


@settings(deadline=None)
@given(
    rows=SIZES,
    columns=SIZES,
    error=st.floats(1e-13, 0.99),
    seed=SEEDS,
    method=st.sampled_from([Economy(), Randomized(oversampling=2), Randomized(seed=7)]),
)
def test_an_error_is_met_with_the_fewest_singular_values(
    rows: int, columns: int, error: float, seed: int, method: SVDMethod
) -> None:
    matrix = random_matrix(rows, columns, seed)
    found = decompose_svd(matrix, RelativeError(error), method=method)
    assert found.relative_error <= error
    values = torch.linalg.svdvals(matrix)
    (kept,) = found.bonds
    if kept > 1 and isinstance(method, Economy):
        assert float(values[kept - 1 :].norm() / values.norm()) > error * (1 - 1e-6)


@settings(deadline=None)
@given(rows=st.integers(2, 12), columns=st.integers(2, 12), seed=SEEDS)
def test_a_share_of_the_parameters_is_never_exceeded(rows: int, columns: int, seed: int) -> None:
    share = (rows + columns) / (rows * columns) * 1.5
    found = decompose_svd(random_matrix(rows, columns, seed), KeepParameters(share))
    assert found.num_parameters <= share * rows * columns
    assert found.bonds == (1,)


@settings(deadline=None)
@given(bond=st.integers(1, 6), seed=SEEDS)
def test_random_ranges_find_a_matrix_of_low_rank_exactly(bond: int, seed: int) -> None:
    matrix = random_matrix(40, bond, seed) @ random_matrix(bond, 30, seed + 1)
    method = Randomized(oversampling=2, power_iterations=0, seed=seed)
    found = decompose_svd(matrix, Bonds((bond,)), method=method)
    assert found.relative_error < 1e-12
    again = decompose_svd(matrix, Bonds((bond,)), method=method)
    assert torch.equal(found.left, again.left)


def test_power_iterations_come_near_the_best_error_where_singular_values_decay_slowly() -> None:
    matrix = random_matrix(80, 60, 0) * 0.8 ** -torch.arange(60)
    best = decompose_svd(matrix, MaxBond(10)).relative_error
    rough = decompose_svd(matrix, MaxBond(10), method=Randomized(0, 0)).relative_error
    fine = decompose_svd(matrix, MaxBond(10), method=Randomized(5, 6)).relative_error
    assert best <= fine < rough
    assert fine - best < 0.1 * (rough - best)


@pytest.mark.parametrize("method", [Economy(), Randomized()])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_short_numbers_are_computed_in_float64(method: SVDMethod, dtype: torch.dtype) -> None:
    matrix = random_matrix(6, 5, 0).to(dtype)
    found = decompose_svd(matrix, MaxBond(5), method=method)
    assert found.left.dtype == torch.float64
    assert found.relative_error < 1e-14
    torch.testing.assert_close(found.to_dense().to(dtype), matrix)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_squares_neither_overflow_nor_underflow(scale: float) -> None:
    matrix = random_matrix(5, 4, 0)
    found = decompose_svd(matrix * scale, MaxBond(2))
    assert found.relative_error == pytest.approx(
        decompose_svd(matrix, MaxBond(2)).relative_error, rel=1e-12
    )


def test_zero_has_no_error_and_the_size_asked_for() -> None:
    found = decompose_svd(torch.zeros(4, 3), MaxBond(2))
    assert (found.bonds, found.relative_error) == ((2,), 0.0)
    assert decompose_svd(torch.zeros(4, 3), RelativeError(0.1)).bonds == (1,)


@settings(deadline=None)
@given(rows=SIZES, columns=SIZES, count=st.integers(1, 12), seed=SEEDS)
def test_left_vectors_are_those_of_the_matrix_completed_to_a_basis(
    rows: int, columns: int, count: int, seed: int
) -> None:
    matrix = random_matrix(rows, columns, seed)
    count = min(count, rows)
    left, values = left_singular_vectors(matrix, count)
    torch.testing.assert_close(values, torch.linalg.svdvals(matrix))
    assert left.shape == (rows, count)
    torch.testing.assert_close(left.T @ left, torch.eye(count).double())
    shared = min(count, columns)
    torch.testing.assert_close((left[:, :shared].T @ matrix).norm(dim=1), values[:shared])


def failing(matrix: Tensor, *, full_matrices: bool) -> None:
    raise torch.linalg.LinAlgError  # type: ignore[attr-defined]


def not_a_number(matrix: Tensor, *, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    broken = torch.full((1,), torch.nan)
    return broken, broken, broken


@pytest.mark.parametrize("broken", [failing, not_a_number])
def test_another_driver_is_used_and_named_where_the_first_one_fails(
    broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = random_matrix(5, 4, 0)
    best = decompose_svd(matrix, MaxBond(2))
    assert best.driver == "gesdd"
    monkeypatch.setattr(torch.linalg, "svd", broken)
    found = decompose_svd(matrix, MaxBond(2))
    assert found.driver == "gesvd"
    torch.testing.assert_close(found.to_dense(), best.to_dense())


def test_where_both_drivers_fail_the_matrix_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing_too(matrix: object, *, full_matrices: bool, lapack_driver: str) -> None:
        raise numpy.linalg.LinAlgError(f"{lapack_driver} did not converge")

    monkeypatch.setattr(torch.linalg, "svd", failing)
    monkeypatch.setattr(scipy.linalg, "svd", failing_too)
    with pytest.raises(DecompositionError, match=r"shape \(3, 2\): gesvd did not converge"):
        thin_svd(torch.ones(3, 2))


def test_other_orders_are_refused() -> None:
    with pytest.raises(DecompositionError, match=r"needs a matrix, got order 3 \(shape \(2, 3, 4"):
        decompose_svd(torch.ones(2, 3, 4), MaxBond(1))


@pytest.mark.parametrize("name", ["oversampling", "power_iterations", "seed"])
def test_negative_options_are_refused(name: str) -> None:
    with pytest.raises(DecompositionError, match=f"Randomized: {name} must be at least 0, got -1"):
        Randomized(**{name: -1})
