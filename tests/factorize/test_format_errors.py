"""Curves of errors, from spectra and from a few fits."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import DecompositionError
from rankscope.factorize.formats.errors import interpolated_errors, tails


@settings(deadline=None, max_examples=20)
@given(rows=st.integers(1, 8), columns=st.integers(1, 8), seed=st.integers(0, 99))
def test_each_tail_is_the_distance_to_the_nearest_matrix_of_that_rank(
    rows: int, columns: int, seed: int
) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).double()
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    found = tails(1e-30 * matrix)
    assert len(found) == min(rows, columns) + 1
    for rank, tail in enumerate(found):
        nearest = (left[:, :rank] * values[:rank]) @ right[:rank]
        assert float(tail) == pytest.approx(float((matrix - nearest).norm() / matrix.norm()))


def test_zeros_have_no_tail() -> None:
    assert not tails(torch.zeros(3, 2)).any()


def test_entries_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DecompositionError, match="1 of 4 entries are not finite"):
        tails(torch.tensor([[1.0, 2.0], [math.nan, 3.0]]))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20, unique=True))
def test_an_exponential_is_found_again_from_few_fits(counts: list[int]) -> None:
    fitted = []

    def fit(place: int) -> float:
        fitted.append(place)
        return float(2.0 ** (-counts[place] / 100))

    errors = interpolated_errors(counts, fit, num_entries=2000)
    assert len(fitted) == min(3, len(counts)) == len(set(fitted))
    for count, error in zip(counts, errors, strict=True):
        assert error == pytest.approx(2.0 ** (-count / 100))


@given(st.lists(st.floats(0, 2), min_size=1, max_size=10), st.integers(1, 20))
def test_more_parameters_never_have_a_larger_error(found: list[float], num_entries: int) -> None:
    counts = range(1, len(found) + 1)
    errors = interpolated_errors(counts, lambda place: found[place], num_entries=num_entries)
    assert errors == sorted(errors, reverse=True)
    assert max(errors) <= 1


def test_beyond_half_of_the_entries_squares_fall_linearly_to_zero() -> None:
    fitted = {20: 0.9, 50: 0.8}
    counts = [50, 100, 75, 20]
    errors = interpolated_errors(counts, lambda place: fitted[counts[place]], num_entries=100)
    assert errors == pytest.approx([0.8, 0.0, 0.8 * 0.5**0.5, 0.9])


def test_a_ladder_of_large_ranks_only_is_fitted_at_the_smallest() -> None:
    assert interpolated_errors([90, 80], [0.1, 0.2].__getitem__, num_entries=100) == pytest.approx(
        [0.2 * 0.5**0.5, 0.2]
    )


def test_an_exact_fit_is_an_error_of_nearly_zero() -> None:
    assert interpolated_errors([5], lambda _: 0.0, num_entries=100) == [pytest.approx(1e-12)]


@given(st.floats(1e-12, 1e-2), st.integers(2, 6))
def test_tails_far_below_the_root_of_the_rounding_are_exact(small: float, size: int) -> None:
    torch.manual_seed(size)
    bases = [torch.linalg.qr(torch.randn(size, size, dtype=torch.float64)).Q for _ in range(2)]
    values = torch.ones(size, dtype=torch.float64)
    values[-1] = small
    expected = small / float(values.norm())
    error = float(tails(bases[0] * values @ bases[1])[-2])
    assert error == pytest.approx(expected, rel=1e-3, abs=1e-15)
