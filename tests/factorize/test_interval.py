import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.errors import DecompositionError, PrimeError, TooLargeError
from rankscope.factorize import (
    CPFit,
    CPRank,
    CPRankOptions,
    FitOptions,
    Flattening,
    Modular,
    Numeric,
    Reals,
    compose,
    cp_rank,
    hyperdeterminant,
)

HASTY = CPRankOptions(fit=FitOptions(num_restarts=6, max_iterations=100))


def random_tensor(shape: tuple[int, ...], num_components: int, seed: int) -> Reals:
    draw = numpy.random.default_rng(seed)
    return compose(tuple(draw.standard_normal((size, num_components)) for size in shape))


def equal_core_train(size: int, order: int, bond: int = 3) -> Reals:
    """A random tensor train with equal inner cores."""
    draw = numpy.random.default_rng(order)
    tensor = draw.standard_normal((size, bond))
    core = draw.standard_normal((bond, size, bond)) / numpy.sqrt(bond)
    last = draw.standard_normal((bond, size))
    for _ in range(order - 2):
        tensor = numpy.tensordot(tensor, core, 1)
    return numpy.tensordot(tensor, last, 1)


def flattening_of(found: CPRank) -> Flattening:
    assert isinstance(found.lower_reason, Flattening)
    return found.lower_reason


def flip(order: int) -> NDArray[numpy.int64]:
    """The W tensor: 1 where exactly one index is 1."""
    counts = numpy.indices((2,) * order).sum(axis=0)
    return numpy.where(counts == 1, 1, 0)


@settings(deadline=None, max_examples=25)
@given(
    rows=st.integers(1, 9), columns=st.integers(1, 9), inner=st.integers(0, 9), seed=st.integers(0)
)
def test_the_cp_rank_of_a_matrix_is_its_rank(
    rows: int, columns: int, inner: int, seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    matrix = draw.integers(-3, 4, (rows, inner)) @ draw.integers(-3, 4, (inner, columns))
    for tensor in (matrix, matrix.astype(float), torch.from_numpy(matrix)[:, None]):
        found = cp_rank(tensor)
        assert found.lower == found.upper == numpy.linalg.matrix_rank(matrix)


@settings(deadline=None, max_examples=12)
@given(
    shape=st.sampled_from([(3, 4, 5), (2, 3, 3, 2), (3, 3, 3), (4, 2, 4)]),
    num_components=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_random_sums_of_few_products_have_their_number_as_rank(
    shape: tuple[int, ...], num_components: int, seed: int
) -> None:
    """Kruskal (1977): such sums are unique, so that no shorter one exists."""
    options = CPRankOptions(fit=FitOptions(max_component_norm=1e4))
    found = cp_rank(random_tensor(shape, num_components, seed), options)
    assert found.lower <= num_components
    assert found.upper == num_components


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 10**6))
def test_the_sign_of_the_hyperdeterminant_decides_between_rank_2_and_3(seed: int) -> None:
    """De Silva & Lim (2008), Table 7.1: positive means real rank 2, negative 3."""
    tensor = numpy.random.default_rng(seed).standard_normal((2, 2, 2))
    value = hyperdeterminant(tensor / numpy.linalg.norm(tensor))
    found = cp_rank(tensor, HASTY)
    if abs(value) > 1e-6:
        assert found.lower == found.upper == (2 if value > 0 else 3)
    if value < -1e-6 or value > 0.02:  # nearer to 0, components grow
        assert found.upper_fit.num_components == found.upper


@pytest.mark.parametrize("order", [3, 4])
def test_limits_of_sums_of_two_products_are_not_taken_for_such_sums(order: int) -> None:
    """The W tensor has border rank 2 and rank equal to its order (de Silva & Lim, 2008)."""
    found = cp_rank(flip(order), HASTY)
    if order == 3:  # decided by its orbit
        assert found.is_exact
        assert (found.lower, found.failed) == (3, ())
    else:
        assert (found.lower, found.upper) == (2, order)
        assert found.failed == tuple(range(2, order))
    rotated = flip(order).astype(float)
    for position in range(order):
        turn = numpy.linalg.qr(numpy.random.default_rng(position).standard_normal((2, 2)))[0]
        rotated = numpy.moveaxis(numpy.tensordot(rotated, turn, (position, 0)), -1, position)
    turned = cp_rank(rotated, HASTY)
    assert (turned.lower, turned.upper) == (2, order)


def test_two_by_two_matrices_are_multiplied_with_seven_products() -> None:
    """Strassen (1969); the rank is 7, of which flattenings see 6."""
    tensor = numpy.zeros((4, 4, 4), dtype=numpy.int64)
    for i, j, k in numpy.ndindex(2, 2, 2):
        tensor[2 * i + j, 2 * j + k, 2 * k + i] = 1
    for one in (tensor, tensor.astype(numpy.uint8), 2**62 * tensor, tensor.astype(numpy.float32)):
        found = cp_rank(one, HASTY)
        assert (found.lower, found.upper) == (6, 7)
        assert flattening_of(found).wedge == 1


@pytest.mark.parametrize(
    ("size", "order", "lower", "upper"), [(2, 4, 4, 4), (2, 5, 4, 6), (2, 6, 8, 8)]
)
def test_equal_core_tensor_trains_have_the_reference_ranks(
    size: int, order: int, lower: int, upper: int
) -> None:
    """The lower end is min(n, r) to half the order; the upper one what peers have found."""
    found = cp_rank(equal_core_train(size, order), HASTY)
    assert found.lower == lower == size ** (order // 2)
    assert lower <= found.upper <= upper


def test_a_train_that_needs_many_iterations_is_decomposed_with_the_default_budget() -> None:
    found = cp_rank(equal_core_train(3, 4))
    assert (found.lower, found.upper, found.is_exact) == (9, 9, True)


@settings(deadline=None, max_examples=6)
@given(seed=st.integers(0, 99), data=st.data())
def test_order_and_scale_of_the_entries_do_not_matter(seed: int, data: st.DataObject) -> None:
    tensor = random_tensor((2, 3, 3), 2, seed)
    positions = data.draw(st.permutations(range(3)))
    options = CPRankOptions(fit=FitOptions(max_component_norm=1e4))
    for other in (tensor.transpose(positions), -1e200 * tensor, tensor[::-1, [2, 0, 1]]):
        found = cp_rank(other, options)
        assert (found.lower, found.upper) == (2, 2)


def test_integers_are_judged_modulo_a_prime_and_floats_by_their_error() -> None:
    identity = numpy.eye(3, dtype=numpy.int64)
    exact = cp_rank(identity, CPRankOptions(prime=101))
    assert flattening_of(exact).arithmetic == Modular(101)
    assert str(exact).startswith("CP rank 3: matricization (0,) against (1,) has rank 3 modulo 101")
    numeric = cp_rank(identity.astype(float))
    assert flattening_of(numeric).arithmetic == Numeric(1e-10)
    # The tiny entry counts where it is exact, and is an error where errors are allowed.
    tiny = numpy.diag([10**12, 1])
    exact, numeric = cp_rank(tiny), cp_rank(tiny.astype(float))
    assert (exact.lower, exact.upper, numeric.lower, numeric.upper) == (2, 2, 1, 1)


def test_common_divisors_do_not_hide_a_tensor_from_its_prime() -> None:
    options = CPRankOptions(prime=101)
    assert cp_rank(101**3 * numpy.eye(3, dtype=numpy.int64), options).lower == 3
    assert cp_rank(numpy.zeros((2, 3, 2), dtype=numpy.uint8), options).upper == 0
    # Modulo 101 this has rank 1: a valid bound, if not the best.
    found = cp_rank(numpy.diag([1, 101]), options)
    assert (found.lower, found.upper) == (1, 2)


def test_the_interval_never_turns_inside_out() -> None:
    """An exact bound above what the error allows: the search starts at the bound."""
    for large in (10**12, 10**14):
        tensor = numpy.zeros((2, 2, 2), dtype=numpy.int64)
        tensor[0, 0, 0], tensor[1, 1, 1] = large, 1
        # All fibres differ from 0, so that only singular vectors give 2.
        left, right = numpy.array([[1, 1], [1, 2], [1, 3]]), numpy.array([[1, 1, 2], [1, 0, 1]])
        matrix = (left * [large, 1]) @ right
        for one in (tensor, matrix):
            found = cp_rank(one)
            assert (found.lower, found.upper) == (2, 2)


def test_results_are_plain_data_for_json_and_starts_are_reported() -> None:
    seen = list[CPFit]()
    found = cp_rank(flip(3)[:, :, :, None], HASTY, report=seen.append)
    assert [fit.num_components for fit in seen] == [2] * HASTY.fit.num_restarts
    assert found.to_dict() == {
        "lower": 2,
        "upper": 3,
        "lower_reason": str(found.lower_reason),
        "relative_error": found.upper_fit.relative_error,
        "largest_component_norm": found.upper_fit.largest_component_norm,
        "failed": [2],
        "errors": [
            {"components": 2, "relative_error": min(fit.relative_error for fit in seen)},
            {"components": 3, "relative_error": found.upper_fit.relative_error},
        ],
    }
    assert str(found).startswith("CP rank 2..3: ")


def test_sizes_beyond_the_budget_are_not_tried() -> None:
    """A random 3 x 3 x 3 tensor has rank 5; with room for 4 components fibres must do."""
    tensor = numpy.random.default_rng(0).standard_normal((3, 3, 3))
    tight = FitOptions(num_restarts=1, max_iterations=20, max_unknowns=4 * 9)
    with pytest.raises(TooLargeError, match=r"5 components \(45 unknowns\)"):
        cp_rank(tensor, CPRankOptions(fit=tight))
    found = cp_rank(tensor, CPRankOptions(fit=tight, max_koszul_entries=0))
    assert (found.lower, found.upper, found.failed) == (3, 9, (3,))


def test_what_is_no_real_tensor_and_no_prime_is_refused() -> None:
    with pytest.raises(DecompositionError, match=r"cp_rank needs real numbers.* got complex128"):
        cp_rank(numpy.zeros((2, 2, 2), dtype=complex))
    with pytest.raises(PrimeError, match="must be below 16777216, got 2147483647"):
        CPRankOptions(prime=2147483647)
