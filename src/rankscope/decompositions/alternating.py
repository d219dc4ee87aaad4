"""Alternating least squares with line search on the factors of a sum of outer products."""

import math
from dataclasses import dataclass

import numpy
from scipy.linalg import lapack

from rankscope.decompositions.factors import Factors, Reals, balance, outer_columns

# Relative to the mean of the diagonal: equations of nearly parallel vectors stay solvable.
_LEAST_RIDGE = 1e-13


@dataclass(frozen=True)
class Sweeps:
    """How long to go on, and what large factors cost.

    Args:
        max_sweeps: at most so many.
        least_gain: also ends when a sweep lowers the squared error by less than this share of it.
        penalty: of the factors' squared norms, beside the squared error of a tensor of norm 1.
    """

    max_sweeps: int
    least_gain: float = 1e-4
    penalty: float = 0.0


def alternate(tensor: Reals, start: Factors, sweeps: Sweeps) -> Factors:
    r"""Solve for one factor after the other; every other sweep also tries to go on further.

    Each factor is the best one for all others, of
    :math:`\|T - X\|^2 + \lambda \sum_k \|F^{(k)}\|^2`. The step that is tried beyond a sweep is
    its cube root's multiple of the last change, and is taken only if it lowers that sum.

    Reference:
        Rajih, Comon & Harshman (2008), Enhanced line search, Sec. 3, doi:10.1137/06065577;
        Kolda & Bader (2009), Sec. 3.4, doi:10.1137/07070111X.
    """
    square = float(numpy.vdot(tensor, tensor))
    now, value = balance(start), math.inf
    for sweep in range(1, sweeps.max_sweeps + 1):
        before, value_before = now, value
        now, value = _swept(tensor, now, square, sweeps.penalty)
        if not value_before - value > sweeps.least_gain * abs(value):
            break
        if sweep > 2 and sweep % 2 == 0:
            now, value = _further(tensor, (before, now), sweep, (square, value, sweeps.penalty))
    return now


def _swept(tensor: Reals, factors: Factors, square: float, penalty: float) -> tuple[Factors, float]:
    """Every factor solved for once, balanced, and the sum that is lowered.

    The tensor is contracted twice only: with the second half of the factors for the first half,
    and the other way round.
    """
    middle = len(factors) // 2
    halves = [list(range(middle)), list(range(middle, len(factors)))]
    solved = list(factors)
    wanted = solved[-1]
    for half in halves:
        partial = _half_contracted(tensor, tuple(solved), half)
        for position in half:
            wanted = _contracted(partial, [solved[other] for other in half], position - half[0])
            gram = _gram(solved[:position] + solved[position + 1 :])
            solved[position] = _solved(gram, wanted, penalty)
    inner = float(numpy.vdot(wanted, solved[-1]))
    found = balance(tuple(solved))
    return found, square - 2 * inner + float(_gram(list(found)).sum()) + _cost(found, penalty)


def _further(
    tensor: Reals,
    pair: tuple[Factors, Factors],
    sweep: int,
    known: tuple[float, float, float],
) -> tuple[Factors, float]:
    """Beyond the last of two points on the line through both, if that is lower."""
    before, now = pair
    square, value, penalty = known
    step = sweep ** (1 / 3)
    tried = tuple(new + step * (new - old) for old, new in zip(before, now, strict=True))
    middle = len(tried) // 2
    partial = _half_contracted(tensor, tried, list(range(middle)))
    inner = float(numpy.vdot(partial, outer_columns(tried[:middle])))
    found = square - 2 * inner + float(_gram(list(tried)).sum()) + _cost(tried, penalty)
    return (tried, found) if found < value else (now, value)


def _half_contracted(tensor: Reals, factors: Factors, half: list[int]) -> Reals:
    """The tensor seen through all factors outside a half: (sizes of the half, component)."""
    middle = len(factors) // 2
    matrix = tensor.reshape(math.prod(tensor.shape[:middle]), -1)
    if half[0] == 0:
        return matrix @ outer_columns(factors[middle:])
    return matrix.T @ outer_columns(factors[:middle])


def _contracted(partial: Reals, factors: list[Reals], place: int) -> Reals:
    """What is left of a half after all its factors but one are contracted."""
    size, count = factors[place].shape
    for factor in reversed(factors[place + 1 :]):
        partial = numpy.einsum("abs,bs->as", partial.reshape(-1, len(factor), count), factor)
    for factor in factors[:place]:
        partial = numpy.einsum("abs,as->bs", partial.reshape(len(factor), -1, count), factor)
    return partial.reshape(size, count)


def _gram(factors: list[Reals]) -> Reals:
    product = factors[0].T @ factors[0]
    for factor in factors[1:]:
        product = product * (factor.T @ factor)
    return product


def _solved(gram: Reals, wanted: Reals, penalty: float) -> Reals:
    ridge = _LEAST_RIDGE * max(float(gram.trace()) / len(gram), float(numpy.finfo(float).tiny))
    while True:
        damped = gram + (penalty + ridge) * numpy.eye(len(gram))
        _, solution, failed = lapack.dposv(damped, wanted.T)
        if not failed:
            factor: Reals = solution.T
            return factor
        ridge *= 10


def _cost(factors: Factors, penalty: float) -> float:
    return penalty * sum(float(numpy.vdot(factor, factor)) for factor in factors)
