"""Damped Gauss-Newton steps (Levenberg and Marquardt), for CP fits and for small networks alike.

Half of a squared residual r is lowered by steps s with (JᵗJ + damping) s = -Jᵗr. The damping
follows how well the last step was predicted. The equations are solved by a Cholesky factorization,
or by conjugate gradients from products alone.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy
from scipy.linalg import lapack

from rankscope.factorize.truncation import Reals

# Minus the damped inverse of J^T J times a slope; None if there is none.
Solve = Callable[[Reals, float], Reals | None]
State = TypeVar("State")

FIRST_DAMPING = 0.1
_LEAST_DAMPING = 1e-15
_LARGEST_DAMPING = 1e6


def damped_step(
    error: float,
    slope: Reals,
    solve: Solve,
    take: Callable[[Reals], tuple[State, float]],
    damping: float,
) -> tuple[State | None, float]:
    """The next state that has a smaller error, and the damping for the step after it.

    Args:
        error: norm of the residual now; near 1 or less, so that limits of damping mean something.
        slope: J^T r now.
        solve: gives a step for a slope and a damping.
        take: the state after a step, and its error.
        damping: to begin with; it grows until a step goes down.

    Returns:
        None instead of a state if no step goes down.

    Reference:
        Nielsen (1999), Damping parameter in Marquardt's method, IMM-REP-1999-05.
    """
    growth = 2.0
    while damping < _LARGEST_DAMPING:
        step = solve(slope, damping)
        if step is not None:
            after, error_after = take(step)
            if error_after < error:
                share = (error**2 - error_after**2) / float(step @ (damping * step - slope))
                factor = max(1 / 3, 1 - (2 * share - 1) ** 3)
                return after, max(damping * factor, _LEAST_DAMPING)
        damping *= growth
        growth *= 2
    return None, damping


def solve_damped(matrix: Reals, slope: Reals, damping: float) -> Reals | None:
    """Minus the damped inverse times the slope, or None if rounding made the matrix indefinite."""
    damped = matrix.copy()
    damped.flat[:: len(matrix) + 1] += damping
    # The transpose lies in memory as LAPACK wants it, so that nothing is copied.
    _, step, failed = lapack.dposv(damped.T, -slope, overwrite_a=1)
    return None if failed else step


def conjugate_gradients(
    apply: Callable[[Reals], Reals],
    precondition: Callable[[Reals], Reals],
    right: Reals,
    *,
    relative_residual: float,
    max_iterations: int,
) -> Reals:
    """Solve A x = b nearly, from products with the positive definite A alone.

    Args:
        apply: A times an array.
        precondition: an approximation of the inverse of A times an array.
        right: b, of any shape.
        relative_residual: norm of b - A x over that of b that is near enough.
        max_iterations: at most; the next step begins elsewhere anyhow.
    """
    solution, residual = numpy.zeros_like(right), right.copy()
    enough = relative_residual * float(numpy.linalg.norm(right))
    direction, before = numpy.zeros_like(right), math.inf
    for _ in range(max_iterations):
        if float(numpy.linalg.norm(residual)) <= enough:
            break
        ready = precondition(residual)
        weight = float(numpy.vdot(residual, ready))
        direction = ready + (weight / before) * direction
        product = apply(direction)
        length = weight / float(numpy.vdot(direction, product))
        solution += length * direction
        residual -= length * product
        before = weight
    return solution
