"""The numbers of a row, against their definitions and known spectra."""

import math

import numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import MatrixRow, Spectrum, matrix_spectrum
from rankscope.auditing.spectra import NUM_SHOWN

VALUES = st.lists(st.floats(0, 1e3, allow_subnormal=False), min_size=1, max_size=12)


def row_of(values: list[float], rounding: float = 0.0) -> MatrixRow:
    ordered = numpy.array(sorted(values, reverse=True))
    return Spectrum((len(values), 2 * len(values)), ordered, rounding).to_row("")


def random_matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None)
@given(size=st.integers(2, 20), scale=st.floats(1e-6, 1e6), seed=st.integers(0, 99))
def test_an_orthogonal_matrix_has_every_rank_full(size: int, scale: float, seed: int) -> None:
    orthogonal = torch.linalg.qr(random_matrix(size, size, seed).double()).Q
    row = matrix_spectrum(scale * orthogonal).to_row("")
    assert row.numeric_rank == row.num_values == size
    assert math.isclose(row.stable_rank, size, rel_tol=1e-9)
    assert math.isclose(row.effective_rank, size, rel_tol=1e-9)
    assert math.isclose(row.entropy, 1, rel_tol=1e-9)
    assert math.isclose(row.largest, scale, rel_tol=1e-9)
    assert math.isclose(row.frobenius, scale * math.sqrt(size), rel_tol=1e-9)


@settings(deadline=None)
@given(rows=st.integers(2, 15), columns=st.integers(2, 15), seed=st.integers(0, 99))
def test_a_product_of_two_vectors_has_every_rank_one(rows: int, columns: int, seed: int) -> None:
    outer = random_matrix(rows, 1, seed) @ random_matrix(1, columns, seed + 1)
    row = matrix_spectrum(outer).to_row("")
    assert row.numeric_rank == 1
    assert set(row.rank_at.values()) == {1}
    assert math.isclose(row.stable_rank, 1, abs_tol=1e-6)
    assert math.isclose(row.effective_rank, 1, abs_tol=1e-6)
    assert row.entropy < 1e-6


@settings(deadline=None)
@given(values=VALUES)
def test_ranks_at_shares_are_the_smallest_that_hold_them(values: list[float]) -> None:
    row = row_of(values)
    squares = sorted(((value / max(max(values), 1e-300)) ** 2 for value in values), reverse=True)
    for share, found in row.rank_at.items():
        wanted = int(share) / 100 * sum(squares) * (1 - 1e-9)
        assert sum(squares[:found]) >= wanted
        assert found == 0 or sum(squares[: found - 1]) <= wanted * (1 + 2e-9)


@settings(deadline=None)
@given(values=VALUES)
def test_stable_rank_is_at_most_effective_rank_is_at_most_the_number_of_values(
    values: list[float],
) -> None:
    row = row_of(values)
    assert row.stable_rank <= row.effective_rank * (1 + 1e-9)
    assert row.effective_rank <= row.num_values * (1 + 1e-9)
    assert 0 <= row.entropy <= 1
    assert 0 <= row.random_distance <= 1
    assert row.outliers <= sum(value > 0 for value in values)


def test_the_zero_matrix_has_no_rank_at_all() -> None:
    row = matrix_spectrum(torch.zeros(3, 5)).to_row("")
    numbers = [row.largest, row.frobenius, row.stable_rank, row.effective_rank, row.entropy]
    assert numbers == [0.0] * 5
    assert (row.numeric_rank, row.outliers, row.random_edge, row.random_distance) == (0, 0, 0, 0)
    assert row.rank_at == {"50": 0, "90": 0, "95": 0, "99": 0}


def test_one_value_is_as_even_as_it_can_be() -> None:
    assert row_of([7.0]).entropy == 1


def test_values_are_counted_above_rounding_only() -> None:
    assert row_of([5.0, 2.0, 1.0], rounding=1.5).numeric_rank == 2


def test_a_long_spectrum_is_shown_by_values_from_its_first_to_its_last() -> None:
    values = [float(value) for value in range(1000)]
    row = row_of(values)
    assert row.num_values == 1000
    assert len(row.singular_values) == NUM_SHOWN
    assert (row.singular_values[0], row.singular_values[-1]) == (999.0, 0.0)
    assert set(row.singular_values) <= set(values)
    assert row_of(values[:NUM_SHOWN]).singular_values == tuple(values[:NUM_SHOWN][::-1])


@settings(deadline=None, max_examples=15)
@given(rows=st.integers(100, 300), columns=st.integers(100, 300), seed=st.integers(0, 99))
def test_random_matrices_look_random(rows: int, columns: int, seed: int) -> None:
    matrix = random_matrix(rows, columns, seed)
    row = matrix_spectrum(matrix).to_row("")
    size = float(matrix.double().square().mean().sqrt())
    assert math.isclose(row.random_edge, size * (math.sqrt(rows) + math.sqrt(columns)))
    assert row.outliers <= 3
    assert row.random_distance < 0.05


@settings(deadline=None, max_examples=15)
@given(count=st.integers(1, 5), seed=st.integers(0, 99))
def test_planted_directions_are_found_as_outliers(count: int, seed: int) -> None:
    spikes = torch.linalg.qr(random_matrix(200, count, seed)).Q
    matrix = random_matrix(200, 100, seed) + 100 * spikes @ random_matrix(100, count, seed + 1).T
    row = matrix_spectrum(matrix).to_row("")
    assert row.outliers == count


def test_a_low_rank_matrix_is_far_from_random() -> None:
    row = matrix_spectrum(random_matrix(100, 5) @ random_matrix(5, 100)).to_row("")
    assert row.random_distance > 0.9
    assert row.outliers == row.numeric_rank == 5
