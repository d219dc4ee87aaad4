"""Probability measures of one real input, under which functions are compared in mean square."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy
from numpy.polynomial import hermite_e, legendre

from rankscope.errors import MetricError
from rankscope.separation.nearby.metrics import Matrix

_MOST_NODES = 100  # NumPy's rules are tested up to here
_HIGHEST_POWER = 150  # of a normal input whose mean square is below 10^308


class Measure(ABC):
    """A measure of total mass 1 with its orthogonal polynomials.

    Attributes:
        name: how it is called in results.
    """

    name: ClassVar[str]

    @abstractmethod
    def rule(self, count: int) -> tuple[Matrix, Matrix]:
        """Gauss nodes and weights, exact for polynomials of degree up to 2 count - 1."""

    @abstractmethod
    def expansion(self, power: int) -> Matrix:
        """The coefficients of x^power in the orthonormal polynomials of degree 0..power."""


@dataclass(frozen=True)
class Uniform(Measure):
    """The uniform measure on the interval from -1 to 1, with Legendre polynomials.

    Example:
        >>> nodes, weights = Uniform().rule(2)
        >>> weights.tolist()
        [0.5, 0.5]
    """

    name = "uniform on [-1, 1]"

    def rule(self, count: int) -> tuple[Matrix, Matrix]:
        nodes, weights = legendre.leggauss(_checked_count(count))
        return nodes, weights / 2

    def expansion(self, power: int) -> Matrix:
        coefficients = numpy.asarray(legendre.poly2leg(_monomial(power)))
        # The mean square of the Legendre polynomial of degree j is 1 / (2 j + 1).
        return coefficients / numpy.sqrt(2 * numpy.arange(power + 1) + 1)


@dataclass(frozen=True)
class StandardNormal(Measure):
    """The normal measure of mean 0 and variance 1, with Hermite polynomials."""

    name = "standard normal"

    def rule(self, count: int) -> tuple[Matrix, Matrix]:
        nodes, weights = hermite_e.hermegauss(_checked_count(count))
        return nodes, weights / math.sqrt(2 * math.pi)

    def expansion(self, power: int) -> Matrix:
        coefficients = numpy.asarray(hermite_e.poly2herme(_monomial(power)))
        # The mean square of the Hermite polynomial of degree j is j!.
        roots = [math.sqrt(math.factorial(degree)) for degree in range(power + 1)]
        return numpy.asarray(coefficients * numpy.array(roots))


def _monomial(power: int) -> Matrix:
    if not 0 <= power <= _HIGHEST_POWER:
        raise MetricError(
            f"Powers of an input go from 0 to {_HIGHEST_POWER} here, got {power}. "
            f"Use quadrature_kernel on a rescaled function."
        )
    return numpy.asarray(numpy.eye(power + 1)[power])


def _checked_count(count: int) -> int:
    if not 1 <= count <= _MOST_NODES:
        raise MetricError(
            f"A Gauss rule here has 1 to {_MOST_NODES} nodes for each input, got {count}. "
            f"For polynomials of higher degree use polynomial_kernel."
        )
    return count
