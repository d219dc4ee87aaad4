import math

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import DecompositionError, TooLargeError
from rankscope.factorize import CPFit, Factors, FitOptions, Reals, component_norms, compose, fit_cp


def random_factors(shape: tuple[int, ...], num_components: int, seed: int = 0) -> Factors:
    draw = numpy.random.default_rng(seed)
    return tuple(draw.standard_normal((size, num_components)) for size in shape)


def random_tensor(shape: tuple[int, ...], num_components: int, seed: int = 0) -> Reals:
    return compose(random_factors(shape, num_components, seed))


@settings(deadline=None, max_examples=15)
@given(
    shape=st.sampled_from([(3, 4, 5), (2, 3, 3, 2), (6, 2, 4), (3, 1, 4), (2, 2, 2, 2, 2)]),
    num_components=st.integers(1, 3),
    seed=st.integers(0, 99),
    scale=st.sampled_from([1e-150, 1.0, -3.0, 1e150]),
)
def test_sums_of_a_few_products_are_found_again(
    shape: tuple[int, ...], num_components: int, seed: int, scale: float
) -> None:
    tensor = scale * random_tensor(shape, num_components, seed)
    # Components that nearly cancel are beside the point here.
    options = FitOptions(max_component_norm=1e4, max_iterations=3000)
    fit = fit_cp(tensor, num_components, options)
    assert fit.relative_error <= 1e-10
    size = numpy.abs(tensor).max()
    difference = numpy.linalg.norm((fit.to_dense() - tensor) / size)
    # Undoing and redoing the scale rounds once more, by far less than the bound.
    assert difference <= 1.1e-10 * numpy.linalg.norm(tensor / size)
    assert [factor.shape for factor in fit.factors] == [(n, num_components) for n in shape]


@settings(deadline=None, max_examples=15)
@given(rows=st.integers(2, 6), columns=st.integers(2, 6), seed=st.integers(0, 99))
def test_a_matrix_is_approximated_as_well_as_by_its_singular_vectors(
    rows: int, columns: int, seed: int
) -> None:
    """Eckart & Young: no matrix of the rank comes nearer than the tail of singular values."""
    matrix = numpy.random.default_rng(seed).standard_normal((rows, columns))
    kept = min(rows, columns) // 2
    singular_values = numpy.linalg.svd(matrix, compute_uv=False)
    best = float(numpy.linalg.norm(singular_values[kept:]) / numpy.linalg.norm(singular_values))
    options = FitOptions(num_restarts=1, max_component_norm=1e6, least_gain=1e-7)
    error = fit_cp(matrix, kept, options).relative_error
    # One start stops where a round gains too little, up to half a percent above the best.
    assert best - 1e-9 <= error <= 1.005 * best + 1e-9


def test_both_libraries_and_all_precisions_give_the_same_fit() -> None:
    tensor = numpy.arange(12).reshape(2, 3, 2)
    errors = {
        fit_cp(one, 1).relative_error
        for one in (tensor, tensor.astype(float), torch.from_numpy(tensor).float())
    }
    assert len(errors) == 1


def test_restarts_follow_the_seed_and_end_with_the_first_decomposition() -> None:
    tensor, seen = random_tensor((3, 3, 3), 2), list[CPFit]()
    fit = fit_cp(tensor, 2, FitOptions(seed=5), report=seen.append)
    assert seen[-1] is fit
    assert not any(one.is_decomposition(FitOptions()) for one in seen[:-1])
    again = fit_cp(tensor, 2, FitOptions(seed=5))
    numpy.testing.assert_array_equal(fit.factors[0], again.factors[0])
    other = fit_cp(tensor, 2, FitOptions(seed=6))
    assert not numpy.array_equal(fit.factors[0], other.factors[0])


def test_without_a_decomposition_the_best_of_all_restarts_is_returned() -> None:
    tensor, seen = random_tensor((3, 3, 3), 5), list[CPFit]()
    fit = fit_cp(tensor, 2, FitOptions(num_restarts=4, max_iterations=5), report=seen.append)
    assert len(seen) == 4
    assert all(one.num_iterations <= 5 for one in seen)
    assert fit.relative_error == min(one.relative_error for one in seen)
    assert not fit.is_decomposition(FitOptions())


@pytest.mark.parametrize("given_components", [2, 3, 4, 5])
def test_a_start_near_a_decomposition_needs_no_restart(given_components: int) -> None:
    """Components are dropped or added; the small ones are the ones to drop."""
    truth = random_factors((4, 4, 4), 3)
    small = tuple(0.01 * factor for factor in random_factors((4, 4, 4), 2, seed=1))
    joined = tuple(numpy.hstack(pair) for pair in zip(truth, small, strict=True))
    start = tuple(factor[:, :given_components] for factor in joined)
    fit = fit_cp(compose(truth), 3, FitOptions(num_restarts=0), start=start)
    assert fit.relative_error <= 1e-10


def test_components_that_cancel_are_no_decomposition() -> None:
    """A difference of two nearby products is as near as you like to one of rank 3."""
    flip = numpy.zeros((2, 2, 2))
    flip[0, 0, 1] = flip[0, 1, 0] = flip[1, 0, 0] = 1
    step = 1e-6
    near = tuple(numpy.array([[1.0, 1.0], [step, -step]]) for _ in range(3))
    factors = (near[0] * [1 / (2 * step), -1 / (2 * step)], *near[1:])
    error = float(numpy.linalg.norm(compose(factors) - flip) / math.sqrt(3))
    fit = CPFit(factors, error, float(component_norms(factors).max() / math.sqrt(3)))
    assert fit.relative_error < 1e-9
    assert not fit.is_decomposition(FitOptions(relative_error=1e-9))
    assert fit.is_decomposition(FitOptions(relative_error=1e-9, max_component_norm=1e6))
    assert str(fit).startswith("2 components, relative error ")
    assert str(fit).endswith("largest component 2.9e+05 times the tensor")


def test_zero_is_a_sum_of_zeros() -> None:
    fit = fit_cp(numpy.zeros((2, 3, 4)), 2)
    assert (fit.relative_error, fit.largest_component_norm, fit.num_components) == (0.0, 0.0, 2)
    assert not fit.to_dense().any()


def test_large_tensors_of_low_rank_are_small_problems() -> None:
    """In bases of its own, a 40 x 50 x 60 tensor of 3 components has 27 unknowns."""
    fit = fit_cp(random_tensor((40, 50, 60), 3), 3, FitOptions(max_unknowns=27))
    assert fit.relative_error <= 1e-10


def test_problems_with_too_many_unknowns_are_refused_with_their_number() -> None:
    message = r"4 components \(36 unknowns\) needs 1,296 entries, over the limit of 1,225"
    with pytest.raises(TooLargeError, match=message):
        fit_cp(random_tensor((3, 3, 3), 4), 4, FitOptions(max_unknowns=35))


def test_requests_without_sense_are_refused() -> None:
    tensor = random_tensor((2, 3, 2), 1)
    with pytest.raises(DecompositionError, match="at least 1 component, got 0"):
        fit_cp(tensor, 0)
    with pytest.raises(DecompositionError, match="num_restarts of at least 1"):
        fit_cp(tensor, 1, FitOptions(num_restarts=0))
    with pytest.raises(
        DecompositionError, match=r"shape \(2, 3, 2\) .* got shapes \[\(2, 1\), \(2"
    ):
        fit_cp(tensor, 1, start=(numpy.ones((2, 1)), numpy.ones((2, 1)), numpy.ones((2, 1))))
    with pytest.raises(DecompositionError, match=r"got shapes \[\(2, 1\), \(3, 2\), \(2, 1\)\]"):
        fit_cp(tensor, 1, start=(numpy.ones((2, 1)), numpy.ones((3, 2)), numpy.ones((2, 1))))
    with pytest.raises(DecompositionError, match=r"fit_cp needs real numbers.* got complex128"):
        fit_cp(tensor.astype(complex), 1)


@pytest.mark.parametrize("error", [1e-14, 1.0, math.nan])
def test_errors_that_float64_cannot_tell_are_refused(error: float) -> None:
    with pytest.raises(DecompositionError, match=rf"lie in 1e-13\.\.1 .*, got {error}"):
        FitOptions(relative_error=error)


@pytest.mark.parametrize(
    "options",
    [{"max_iterations": -1}, {"num_restarts": -2}, {"seed": -3}, {"max_unknowns": -4}],
)
def test_negative_budgets_are_refused(options: dict[str, int]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(DecompositionError, match=f"{name} must be at least 0, got {value}"):
        FitOptions(**options)
