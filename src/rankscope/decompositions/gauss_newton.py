"""Damped Gauss-Newton descent on all factors of a sum of outer products at once.

The residual is r = sum of components - tensor, with Jacobian J. J is never formed: the blocks of
J^T J come from the Gram matrices of the factors, and J^T r from contractions of the residual.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy
from scipy.linalg import lapack

from rankscope.decompositions.factors import (
    Factors,
    Reals,
    balance,
    component_norms,
    compose,
    project,
)

# Minus the damped inverse of J^T J times a slope; None if there is none.
Solve = Callable[[Reals, float], Reals | None]
Equations = Callable[[Factors], Solve]  # at given factors

_FIRST_DAMPING = 0.1
_LEAST_DAMPING = 1e-15
_LARGEST_DAMPING = 1e6


@dataclass(frozen=True)
class Stopping:
    """When a descent ends: near enough, components too large, out of iterations, or no gain."""

    error: float
    max_component_norm: float
    max_iterations: int
    least_gain: float


@dataclass(frozen=True, eq=False)
class Descent:
    """Where a descent is: balanced factors, what they still miss, and iterations so far."""

    factors: Factors
    residual: Reals
    num_iterations: int = 0

    @cached_property
    def error(self) -> float:
        """Frobenius norm of the residual itself, entry by entry."""
        return float(numpy.linalg.norm(self.residual))


def gradient(residual: Reals, factors: Factors) -> Reals:
    """Derivative of half the squared residual by all factors, one after the other: J^T r."""
    return numpy.concatenate([part.ravel() for part in project(residual, factors)])


def normal_matrix(factors: Factors) -> Reals:
    r"""J^T J, with unknowns in the order of the gradient.

    .. math:: (J^T J)_{(k,a,s),(l,b,t)} = \begin{cases}
              \delta_{ab} \prod_{m \ne k} W^{(m)}_{st} & k = l \\
              F^{(k)}_{at} F^{(l)}_{bs} \prod_{m \ne k,l} W^{(m)}_{st} & k \ne l \end{cases}

    with Gram matrices :math:`W^{(m)} = F^{(m)T} F^{(m)}`.

    Reference:
        Phan, Tichavský & Cichocki (2013), arXiv:1205.2584.
    """
    order, num_components = len(factors), factors[0].shape[1]
    others = numpy.ones((order, num_components, order, num_components))  # [k, s, l, t]
    for position, factor in enumerate(factors):
        gram = (factor.T @ factor)[:, None, :]
        before_and_after = slice(position), slice(position + 1, None)
        for row, column in product(before_and_after, repeat=2):
            others[row, :, column] *= gram
    tall = numpy.concatenate(factors)
    position_of = numpy.repeat(numpy.arange(order), [len(factor) for factor in factors])
    rows = others.take(position_of, axis=0) * tall[:, None, None, :]
    matrix = rows.take(position_of, axis=2)  # [(k, a), s, (l, b), t]
    matrix *= tall.T[:, :, None]
    every = numpy.arange(len(tall))
    for position in range(order):
        own = slice(*numpy.searchsorted(position_of, [position, position + 1]))
        matrix[own, :, own, :] = 0
    matrix[every, :, every, :] = others[position_of, :, position_of, :]
    return matrix.reshape(tall.size, tall.size)


def dense_equations(factors: Factors) -> Solve:
    """Solve the damped normal equations by forming their matrix and factorizing it.

    Reference:
        Phan, Tichavský & Cichocki (2013), arXiv:1205.2584.
    """
    matrix = normal_matrix(factors)
    return lambda slope, damping: _solve(matrix, slope, damping)


def descend(
    tensor: Reals,
    start: Factors,
    stopping: Stopping,
    *,
    equations: Equations = dense_equations,
    damping: float = _FIRST_DAMPING,
) -> Descent:
    """Walk downhill from a start until one of the stopping conditions holds.

    The damping begins as given, then follows how well the last step was predicted. A tensor of
    Frobenius norm near 1 is assumed, so that the limits of the damping mean something.

    Reference:
        Nielsen (1999), Damping parameter in Marquardt's method, IMM-REP-1999-05.
    """
    factors = balance(start)
    now = Descent(factors, compose(factors) - tensor)
    while _goes_on(now, stopping):
        before = now.error
        now, damping = _iterate(tensor, now, damping, equations)
        if now.error >= (1 - stopping.least_gain) * before:
            break
    return now


def _goes_on(now: Descent, stopping: Stopping) -> bool:
    return (
        now.num_iterations < stopping.max_iterations
        and now.error > stopping.error
        and float(component_norms(now.factors).max()) <= stopping.max_component_norm
    )


def _iterate(
    tensor: Reals, now: Descent, damping: float, equations: Equations
) -> tuple[Descent, float]:
    """The next step that goes down, and the damping for the one after it; no step if none does."""
    slope, solve = gradient(now.residual, now.factors), equations(now.factors)
    growth = 2.0
    while damping < _LARGEST_DAMPING:
        step = solve(slope, damping)
        after = None if step is None else _stepped(tensor, now, step)
        if step is not None and after is not None and after.error < now.error:
            share = (now.error**2 - after.error**2) / float(step @ (damping * step - slope))
            return after, max(damping * max(1 / 3, 1 - (2 * share - 1) ** 3), _LEAST_DAMPING)
        damping *= growth
        growth *= 2
    return now, damping


def _solve(matrix: Reals, slope: Reals, damping: float) -> Reals | None:
    """Minus the damped inverse times the slope, or None if rounding made the matrix indefinite."""
    damped = matrix.copy()
    damped.flat[:: len(matrix) + 1] += damping
    # The transpose lies in memory as LAPACK wants it, so that nothing is copied.
    _, step, failed = lapack.dposv(damped.T, -slope, overwrite_a=1)
    return None if failed else step


def _stepped(tensor: Reals, now: Descent, step: Reals) -> Descent:
    ends = numpy.cumsum([factor.size for factor in now.factors])[:-1]
    parts = zip(now.factors, numpy.split(step, ends), strict=True)
    factors = tuple(factor + part.reshape(factor.shape) for factor, part in parts)
    return Descent(balance(factors), compose(factors) - tensor, now.num_iterations + 1)
