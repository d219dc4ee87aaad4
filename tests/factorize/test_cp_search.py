import numpy
import pytest

from rankscope.errors import DecompositionError
from rankscope.factorize import CPOptions, Reals, Solver, compose, search_cp
from rankscope.factorize import cp as cp_search


def unit(tensor: Reals) -> Reals:
    return tensor / float(numpy.linalg.norm(tensor))


def hidden(shape: tuple[int, ...], num_components: int, noise: float = 0.0, seed: int = 0) -> Reals:
    draw = numpy.random.default_rng(seed)
    tensor = unit(compose(tuple(draw.standard_normal((n, num_components)) for n in shape)))
    return unit(tensor + noise * unit(draw.standard_normal(shape)))


# A limit of sums of two products that is no such sum: components grow without end.
DEGENERATE = unit(
    numpy.array([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]]).repeat(2, 0).repeat(2, 1)
)


@pytest.mark.parametrize("max_dense_unknowns", [0, 4096])
@pytest.mark.parametrize("shape", [(8, 7, 6), (30, 3, 4), (4, 5, 3, 4)])
def test_hidden_products_are_found_by_both_ways_of_solving(
    shape: tuple[int, ...], max_dense_unknowns: int
) -> None:
    options = CPOptions(num_starts=5, least_gain=1e-9, max_dense_unknowns=max_dense_unknowns)
    found = search_cp(hidden(shape, 3), 3, options)
    assert found.error < 1e-9
    assert found.solver in {Solver.GAUSS_NEWTON, Solver.ALTERNATING}


def test_a_large_tensor_is_searched_in_a_core_and_swept_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is left is the noise: a sum with as many unknowns fits a little of it, too."""
    tensor = hidden((60, 50, 30), 4, noise=0.1)
    found = search_cp(tensor, 4)
    assert found.error <= 0.1
    monkeypatch.setattr(cp_search, "_LAST_SWEEPS", 0)
    assert found.error <= search_cp(tensor, 4).error
    monkeypatch.setattr(cp_search, "_MAX_WHOLE_ENTRIES", 10**6)
    assert found.error == pytest.approx(search_cp(tensor, 4).error, rel=1e-3)


def test_gauss_newton_only_lowers_what_sweeps_leave() -> None:
    tensor = unit(numpy.random.default_rng(0).standard_normal((7, 8, 5)))
    sweeps = search_cp(tensor, 6, CPOptions(max_iterations=0))
    both = search_cp(tensor, 6)
    assert sweeps.solver == Solver.ALTERNATING
    assert both.error <= sweeps.error


def test_more_starts_are_never_worse() -> None:
    tensor = unit(numpy.random.default_rng(1).standard_normal((5, 6, 4)))
    errors = [search_cp(tensor, 4, CPOptions(num_starts=count)).error for count in (1, 2, 4)]
    assert errors == sorted(errors, reverse=True)


def test_components_stay_below_a_bound_at_the_price_of_a_larger_error() -> None:
    free = search_cp(DEGENERATE, 2, CPOptions(least_gain=1e-7))
    assert free.largest_component_norm > 3
    loose, tight = (
        search_cp(DEGENERATE, 2, CPOptions(max_component_norm=bound)) for bound in (3.0, 1.0)
    )
    assert loose.largest_component_norm <= 3.0
    assert tight.largest_component_norm <= 1.0
    assert tight.solver == Solver.PENALIZED
    assert free.error < loose.error < tight.error < 0.8


def test_a_bound_that_nothing_exceeds_changes_nothing() -> None:
    tensor = hidden((5, 4, 3), 2, seed=3)
    free = search_cp(tensor, 2)
    bounded = search_cp(tensor, 2, CPOptions(max_component_norm=50.0))
    assert bounded.error == free.error


def test_a_bound_holds_in_a_core_too() -> None:
    wide = numpy.einsum("ijk,ai->ajk", DEGENERATE, numpy.eye(40)[:, : len(DEGENERATE)])
    found = search_cp(unit(wide), 2, CPOptions(max_component_norm=2.0))
    assert found.factors[0].shape == (40, 2)
    assert found.largest_component_norm <= 2.0


@pytest.mark.parametrize(
    ("name", "least", "given"),
    [
        ("num_starts", 1, 0),
        ("max_sweeps", 1, 0),
        ("max_iterations", 0, -1),
        ("least_gain", 0, -0.5),
        ("max_dense_unknowns", 0, -1),
        ("seed", 0, -1),
        ("max_component_norm", 1, 0.5),
    ],
)
def test_options_that_make_no_sense_are_refused(name: str, least: int, given: float) -> None:
    with pytest.raises(DecompositionError, match=f"{name} must be at least {least}, got {given}"):
        CPOptions(**{name: given})  # type: ignore[arg-type]
