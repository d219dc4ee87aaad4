"""Epsilon ranks of functions: kernels by quadrature and of polynomials, under a measure."""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy
import torch
from numpy.polynomial import hermite_e, legendre
from numpy.typing import NDArray

from rankscope.errors import MatrixError, MetricError, PartitionError, TooLargeError
from rankscope.rank.epsilon import Matrix
from rankscope.rank.numeric import (
    DEFAULTS,
    AnyFunction,
    FunctionOptions,
    Halves,
    pair_values,
    require_memory,
)
from rankscope.rank.partition import Partition

# --- Probability measures of one real input, under which functions are compared in mean square ----


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


# --- Functions of few scalar inputs as operators between two groups of them, by Gauss rules -------


def quadrature_kernel(
    function: AnyFunction,
    partition: Partition,
    *,
    measure: Measure,
    num_nodes: int,
    options: FunctionOptions = DEFAULTS,
) -> Matrix:
    r"""Tabulate a function at Gauss nodes, weighted by the roots of their weights.

    .. math:: \sqrt{w_p}\; y(a_p, b_q)\; \sqrt{v_q}

    Singular values are those of the function in mean square if it is a polynomial of degree less
    than `num_nodes` in each input; for other functions they only converge to them as the nodes
    grow more, and bound nothing. `epsilon_rank(kernel, epsilon, metric=Frobenius())` is the
    least rank within a root-mean-square error under the rule's own measure.

    Args:
        function: takes (batch, inputs), one scalar for each position, and gives (batch,) values.
        partition: must cover all positions.
        measure: of each scalar input.
        num_nodes: for each input; a side of k inputs has num_nodes^k points.
        options: how the function is evaluated.

    Example:
        >>> from rankscope.rank.quadrature import Uniform
        >>> kernel = quadrature_kernel(
        ...     lambda inputs: inputs.prod(1),
        ...     Partition.left_right(3),
        ...     measure=Uniform(),
        ...     num_nodes=2,
        ... )
        >>> kernel.shape
        (2, 4)

    Raises:
        PartitionError: if the partition leaves a position out.
        MetricError: if there are too many nodes for a rule.
        FunctionError: if the function gives no usable values.
        TooLargeError: if there are too many pairs of points.
    """
    order = partition.smallest_order
    if partition.fixed(order):
        raise PartitionError(
            f"quadrature_kernel: every input is integrated over, got {partition.positions} of "
            f"0..{order - 1} on a side. Fix the others inside the function."
        )
    nodes, weights = measure.rule(num_nodes)
    require_memory((num_nodes ** len(partition.left), num_nodes ** len(partition.right)), options)
    sides = [_product_rule(nodes, weights, len(s)) for s in (partition.left, partition.right)]
    (left, left_weights), (right, right_weights) = sides
    points = Halves(
        partition, torch.from_numpy(left), torch.from_numpy(right), torch.zeros(order).double()
    )
    values = pair_values(function, points, options).matrix
    kernel: Matrix = numpy.sqrt(left_weights)[:, None] * values * numpy.sqrt(right_weights)
    return kernel


def _product_rule(nodes: Matrix, weights: Matrix, count: int) -> tuple[Matrix, Matrix]:
    """All combinations of nodes, (points, count), and the products of their weights."""
    choice = numpy.indices((len(nodes),) * count).reshape(count, -1)
    products: Matrix = weights[choice].prod(axis=0)
    return nodes[choice].T, products


# --- Polynomials as operators between the functions of two groups of inputs -----------------------


Exponents = tuple[int, ...]

_MOST_ENTRIES = 2**26


def polynomial_kernel(
    coefficients: NDArray[numpy.generic],
    left_exponents: Sequence[Exponents],
    right_exponents: Sequence[Exponents],
    *,
    measure: Measure,
) -> Matrix:
    r"""The matrix of a polynomial in orthonormal polynomials of the two sides.

    .. math:: y(x, z) = \sum_{\mu,\nu} K_{\mu\nu} x^\mu z^\nu
              = \sum_{\alpha,\beta} (T_A^\top K T_B)_{\alpha\beta} p_\alpha(x) p_\beta(z)

    where row mu of T_A expands the monomial. T_A T_A^T is the Gram matrix of the monomials, so
    that singular values are those of Gram_A^(1/2) K Gram_B^(1/2), without a root of an
    ill-conditioned matrix. All scalar inputs are independent and have the same measure.

    The least separation rank within a root-mean-square error, over all functions, is
    `epsilon_rank(kernel, epsilon, metric=Frobenius())`.

    Args:
        coefficients: K, one row for each left monomial and one column for each right one.
        left_exponents: of each left monomial, one for each scalar input of the left side.
        right_exponents: the same for the right side.
        measure: of each scalar input.

    Example:
        >>> from rankscope.rank.quadrature import StandardNormal
        >>> polynomial_kernel(  # 1 + 5 x z
        ...     numpy.diag([1, 5]), [(0,), (1,)], [(0,), (1,)], measure=StandardNormal()
        ... ).tolist()
        [[1.0, 0.0], [0.0, 5.0]]

    Raises:
        MatrixError: if coefficients and exponents do not fit.
        MetricError: if a power is above 150.
        TooLargeError: if the monomials expand into too many orthonormal polynomials.
    """
    if coefficients.shape != (len(left_exponents), len(right_exponents)):
        raise MatrixError(
            f"polynomial_kernel: {len(left_exponents)} left and {len(right_exponents)} right "
            f"monomials need coefficients of that shape, got {coefficients.shape}."
        )
    if coefficients.dtype.kind not in "fiu":
        raise MatrixError(f"polynomial_kernel needs real coefficients, got {coefficients.dtype}.")
    num_bad = int(coefficients.size - numpy.isfinite(coefficients).sum())
    if num_bad:
        raise MatrixError(
            f"polynomial_kernel: {num_bad} of {coefficients.size} coefficients are not finite."
        )
    left = _expansions(left_exponents, measure, side="left")
    right = _expansions(right_exponents, measure, side="right")
    kernel: Matrix = left.T @ coefficients.astype(numpy.float64) @ right
    return kernel


def polynomial_spectrum(
    coefficients: NDArray[numpy.generic],
    left_exponents: Sequence[Exponents],
    right_exponents: Sequence[Exponents],
    *,
    measure: Measure,
) -> Matrix:
    """The singular values of a polynomial between its two sides, descending.

    How many are not 0 is the separation rank; the root of the sum of squares of all but the
    first R is the least root-mean-square error of any function of separation rank R. Arguments
    and errors are those of `polynomial_kernel`.
    """
    kernel = polynomial_kernel(coefficients, left_exponents, right_exponents, measure=measure)
    return numpy.asarray(numpy.linalg.svd(kernel, compute_uv=False))


def _expansions(exponents: Sequence[Exponents], measure: Measure, *, side: str) -> Matrix:
    """T: one row for each monomial, one column for each orthonormal polynomial that occurs."""
    _require_exponents(exponents, side)
    columns: dict[Exponents, int] = {}
    entries: list[tuple[int, int, float]] = []
    for row, powers in enumerate(exponents):
        factors = [measure.expansion(power) for power in powers]
        # Only degrees of the same parity occur: both measures are symmetric.
        choices = [range(power % 2, power + 1, 2) for power in powers]
        for degrees in itertools.product(*choices):
            column = columns.setdefault(degrees, len(columns))
            value = math.prod(f[d] for f, d in zip(factors, degrees, strict=True))
            entries.append((row, column, float(value)))
    expansions = numpy.zeros((len(exponents), len(columns)))
    for row, column, value in entries:
        expansions[row, column] = value
    return expansions


def _require_exponents(exponents: Sequence[Exponents], side: str) -> None:
    if not exponents:
        raise MatrixError(f"polynomial_kernel: the {side} side needs at least 1 monomial, got 0.")
    for powers in exponents:
        if len(powers) != len(exponents[0]) or min(powers, default=-1) < 0:
            raise MatrixError(
                f"polynomial_kernel: a {side} monomial needs {len(exponents[0])} exponents that "
                f"are at least 0, got {powers}."
            )
    num_terms = sum(math.prod(power // 2 + 1 for power in powers) for powers in exponents)
    if num_terms * len(exponents) > _MOST_ENTRIES:
        raise TooLargeError(
            what=f"Expanding {len(exponents):,} {side} monomials in {num_terms:,} polynomials",
            entries=num_terms * len(exponents),
            limit=_MOST_ENTRIES,
            instead="Sample the polynomial with separation_rank instead.",
        )
