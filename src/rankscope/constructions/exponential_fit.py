"""Sums of ridge exponentials, fitted to a function on a box."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy

from rankscope.constructions.dense import Reals

TAYLOR_ORDER = 4
# Weight decay of the fit, tried from the left: small coefficients make small networks.
DECAYS = tuple(10.0**-power for power in range(2, 25, 2))


@dataclass(frozen=True, eq=False)
class ExponentialSum:
    r"""The function :math:`\sum_i \gamma_i \exp\langle\nu_i, x - c\rangle`, with c = `centre`."""

    coefficients: Reals
    directions: Reals
    centre: Reals

    def terms(self, points: Reals) -> Reals:
        """Each term (columns) at each point (rows)."""
        return numpy.asarray(
            self.coefficients * numpy.exp((points - self.centre) @ self.directions.T)
        )

    def variation(self, points: Reals, half: Reals) -> Reals:
        """How far the sum can be from its value at a point in the box around it.

        Taylor's formula: the derivatives at the point, in which large terms cancel, and a bound
        on those of the next order in the box of half sides `half`, in which they do not.
        """
        terms = self.terms(points)
        scaled = self.directions * half
        products = numpy.ones((len(scaled), 1))
        bound = numpy.zeros(len(points))
        for order in range(1, TAYLOR_ORDER + 1):
            products = (products[:, :, None] * scaled[:, None, :]).reshape(len(scaled), -1) / order
            bound += numpy.abs(terms @ products).sum(axis=1)
        reach = numpy.abs(scaled).sum(axis=1)
        rest = numpy.exp(reach) * reach ** (TAYLOR_ORDER + 1) / math.factorial(TAYLOR_ORDER + 1)
        return numpy.asarray(bound + numpy.abs(terms) @ rest)


def lattice(num_inputs: int, size: int) -> Reals:
    """All vectors of integers between -`size` and `size`."""
    return numpy.array(list(itertools.product(range(-size, size + 1), repeat=num_inputs)), float)


def fit_exponentials(
    samples: Reals, values: Reals, directions: Reals, is_enough: Callable[[float], bool]
) -> tuple[ExponentialSum, float]:
    """Least squares with the largest weight decay whose largest error at the samples is enough.

    Returns the last fit, and its error, if none is.
    """
    centre = (samples.min(axis=0) + samples.max(axis=0)) / 2
    columns = numpy.exp((samples - centre) @ directions.T)
    scales = columns.max(axis=0)
    left, singular_values, right = numpy.linalg.svd(columns / scales, full_matrices=False)
    error = numpy.inf
    for decay in DECAYS:
        damped = singular_values / (singular_values**2 + decay * singular_values[0] ** 2)
        coefficients = right.T @ (damped * (left.T @ values)) / scales
        error = float(numpy.abs(columns @ coefficients - values).max())
        if is_enough(error):
            break
    return ExponentialSum(coefficients, directions, centre), error
