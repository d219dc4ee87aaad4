import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.layers.formats.interpolation import interpolated_errors


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
