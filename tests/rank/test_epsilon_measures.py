import math

import numpy
import pytest

from rankscope.errors import MetricError
from rankscope.rank import Measure, StandardNormal, Uniform


def moment(measure: Measure, degree: int) -> float:
    """The mean of x^degree, by its closed form."""
    if degree % 2:
        return 0.0
    is_uniform = isinstance(measure, Uniform)
    return 1 / (degree + 1) if is_uniform else float(math.prod(range(1, degree, 2)))


MEASURES = pytest.mark.parametrize(
    "measure", [Uniform(), StandardNormal()], ids=lambda measure: measure.name
)


@MEASURES
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_a_gauss_rule_is_exact_up_to_twice_its_size(measure: Measure, count: int) -> None:
    nodes, weights = measure.rule(count)
    for degree in range(2 * count):
        scale = float(weights @ abs(nodes) ** degree)
        assert weights @ nodes**degree == pytest.approx(moment(measure, degree), abs=1e-12 * scale)
    wrong = weights @ nodes ** (2 * count)
    assert abs(wrong - moment(measure, 2 * count)) > 1e-6


@MEASURES
def test_expansions_keep_all_inner_products_of_monomials(measure: Measure) -> None:
    rows = [numpy.pad(measure.expansion(power), (0, 6 - power)) for power in range(7)]
    expected = [[moment(measure, j + k) for k in range(7)] for j in range(7)]
    numpy.testing.assert_allclose(numpy.array(rows) @ numpy.array(rows).T, expected, atol=1e-10)


@MEASURES
@pytest.mark.parametrize("power", [-1, 151])
def test_powers_out_of_range_are_refused(measure: Measure, power: int) -> None:
    assert numpy.isfinite(measure.expansion(150)).all()
    with pytest.raises(MetricError, match=f"from 0 to 150 here, got {power}.* quadrature_kernel"):
        measure.expansion(power)


@pytest.mark.parametrize("count", [0, 101])
def test_rules_that_are_empty_or_too_large_are_refused(count: int) -> None:
    with pytest.raises(MetricError, match=rf"1 to 100 nodes .* got {count}.* polynomial_kernel"):
        Uniform().rule(count)
