"""Polynomials as operators between the functions of two groups of inputs."""

import itertools
import math
from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

from rankscope.errors import MatrixError, TooLargeError
from rankscope.separation.nearby.measures import Measure
from rankscope.separation.nearby.metrics import Matrix

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
        >>> from rankscope.separation.nearby.measures import StandardNormal
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
    found = numpy.zeros((len(exponents), len(columns)))
    for row, column, value in entries:
        found[row, column] = value
    return found


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
