import numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.constructions.approximation import ExponentialSum, fit_exponentials, lattice
from rankscope.constructions.dense import Box


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(0, 1000), st.floats(0.01, 0.3))
def test_a_sum_varies_in_a_cell_by_no_more_than_its_bound(
    inputs: int, seed: int, size: float
) -> None:
    draw = numpy.random.default_rng(seed)
    found = ExponentialSum(
        draw.standard_normal(5), 3 * draw.standard_normal((5, inputs)), numpy.zeros(inputs)
    )
    centres, half = draw.uniform(-1, 1, (4, inputs)), numpy.full(inputs, size)
    bound = found.variation(centres, half)
    for _ in range(20):
        moved = centres + draw.uniform(-1, 1, centres.shape) * half
        change = found.terms(moved).sum(axis=1) - found.terms(centres).sum(axis=1)
        assert (numpy.abs(change) <= bound * (1 + 1e-9)).all()


def test_a_sum_of_the_lattice_is_found_again() -> None:
    samples = Box.unit(2).points(12)
    directions = lattice(2, 1)
    assert len(directions) == 9
    values = numpy.exp(samples @ directions[2]) - 2 * numpy.exp(samples @ directions[5])
    found, error = fit_exponentials(samples, values, directions, lambda e: e < 1e-6)
    assert error < 1e-6
    numpy.testing.assert_allclose(found.terms(samples).sum(axis=1), values, atol=1e-6)
