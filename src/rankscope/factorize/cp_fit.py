"""Fit CP decompositions by damped Gauss-Newton, dense or without forming the Jacobian."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product

import numpy
from scipy.linalg import cho_solve

from rankscope.errors import DecompositionError, TooLargeError
from rankscope.factorize.damped_descent import (
    FIRST_DAMPING,
    Solve,
    conjugate_gradients,
    damped_step,
    solve_damped,
)
from rankscope.factorize.truncation import (
    Factors,
    Reals,
    RealTensor,
    balance,
    component_norms,
    compose,
    project,
    random_start,
    resize,
    to_array,
    to_unit,
)
from rankscope.factorize.tucker import compress

# --- Damped Gauss-Newton descent on all factors of a sum of outer products at once ----------------


Equations = Callable[[Factors], Solve]  # at given factors


@dataclass(frozen=True)
class Stopping:
    """When a descent ends: near enough, components too large, out of iterations, or no gain."""

    error: float
    max_component_norm: float
    max_iterations: int
    least_gain: float


@dataclass(frozen=True, eq=False)
class Descent:
    """State of a descent: balanced factors, their residual, and iterations so far."""

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
    return lambda slope, damping: solve_damped(matrix, slope, damping)


def descend(
    tensor: Reals,
    start: Factors,
    stopping: Stopping,
    *,
    equations: Equations = dense_equations,
    damping: float = FIRST_DAMPING,
) -> Descent:
    """Walk downhill from a start until one of the stopping conditions holds.

    The damping begins as given, then follows how well the last step was predicted. A tensor of
    Frobenius norm near 1 is assumed, so that the limits of the damping mean something.

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

    def take(step: Reals) -> tuple[Descent, float]:
        after = _take_step(tensor, now, step)
        return after, after.error

    after, damping = damped_step(now.error, slope, solve, take, damping)
    return now if after is None else after, damping


def _take_step(tensor: Reals, now: Descent, step: Reals) -> Descent:
    ends = numpy.cumsum([factor.size for factor in now.factors])[:-1]
    parts = zip(now.factors, numpy.split(step, ends), strict=True)
    factors = tuple(factor + part.reshape(factor.shape) for factor, part in parts)
    return Descent(balance(factors), compose(factors) - tensor, now.num_iterations + 1)


# --- The best sum of a given number of outer products that restarts can find ----------------------


# Residuals of a float64 tensor are not meaningful below.
_LEAST_RELATIVE_ERROR = 1e-13


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit: the error that counts as a decomposition, and how long to search.

    Args:
        relative_error: largest Frobenius norm of the residual over that of the tensor; ten
            roundings of the tensor's own type if that is more (see `for_precision`).
        max_component_norm: largest Frobenius norm of a component over that of the tensor. Larger
            components cancel each other: the mark of a tensor that is a limit of sums of so few
            products, but not such a sum.
        max_iterations: of each descent.
        least_gain: a descent also ends when a step lowers the error by less than this share.
        num_restarts: how many random starts, besides a start that was given.
        seed: of the random starts.
        max_unknowns: refuse larger problems; the memory grows with the square, the time of an
            iteration with the cube.
    """

    relative_error: float = 1e-10
    max_component_norm: float = 100.0
    max_iterations: int = 300
    least_gain: float = 1e-6
    num_restarts: int = 10
    seed: int = 0
    max_unknowns: int = 4096

    def __post_init__(self) -> None:
        if not _LEAST_RELATIVE_ERROR <= self.relative_error < 1:
            raise DecompositionError(
                f"FitOptions: relative_error must lie in {_LEAST_RELATIVE_ERROR}..1 for float64, "
                f"got {self.relative_error}."
            )
        for name in ("max_iterations", "num_restarts", "seed", "max_unknowns"):
            if getattr(self, name) < 0:
                raise DecompositionError(
                    f"FitOptions: {name} must be at least 0, got {getattr(self, name)}."
                )

    def for_precision(self, epsilon: float) -> "FitOptions":
        """Options for numbers that are known to a relative `epsilon` only.

        Example:
            >>> FitOptions().for_precision(2.0**-23).relative_error < 2e-6
            True
        """
        return replace(self, relative_error=max(self.relative_error, 10 * epsilon))


DEFAULT_FIT = FitOptions()


@dataclass(frozen=True, eq=False)
class CPFit:
    """A sum of outer products, and how near it comes to the tensor it was found for.

    Args:
        factors: one (size, num_components) for each position.
        relative_error: Frobenius norm of the residual, entry by entry, over that of the tensor.
        largest_component_norm: Frobenius norm of the largest component over that of the tensor.
        num_iterations: of the descent that found it; 0 if it was written down directly.
    """

    factors: Factors
    relative_error: float
    largest_component_norm: float
    num_iterations: int = 0

    @property
    def num_components(self) -> int:
        """Number of outer products."""
        return int(self.factors[0].shape[1])

    def to_dense(self) -> Reals:
        """The sum as a tensor."""
        return compose(self.factors)

    def is_decomposition(self, options: FitOptions) -> bool:
        """Whether the error is small enough, and without components that cancel each other."""
        return (
            self.relative_error <= options.relative_error
            and self.largest_component_norm <= options.max_component_norm
        )

    def __str__(self) -> str:
        return (
            f"{self.num_components} components, relative error {self.relative_error:.1e}, "
            f"largest component {self.largest_component_norm:.1e} times the tensor"
        )


Report = Callable[[CPFit], None]


def fit_cp(
    tensor: RealTensor,
    num_components: int,
    options: FitOptions = DEFAULT_FIT,
    *,
    start: Factors | None = None,
    report: Report | None = None,
) -> CPFit:
    r"""Approximate a tensor by a sum of outer products of vectors.

    .. math:: T_{j_1 \dots j_N} \approx \sum_{s=1}^{R} \prod_{k=1}^{N} F^{(k)}_{j_k s}

    Each start is followed by a damped Gauss-Newton descent on all factors; the first result that
    is a decomposition by the options is returned, else the one with the least error.

    Args:
        tensor: real, of order 2 or more.
        num_components: R.
        options: what to look for, and for how long.
        start: factors to begin with before the random starts, of any number of components: the
            smallest ones are dropped, missing ones are drawn.
        report: called with the result of every start.

    Example:
        >>> identity = numpy.einsum("ab,bc->abc", numpy.eye(3), numpy.eye(3))
        >>> fit = fit_cp(identity, 3)
        >>> fit.relative_error < 1e-10, fit.factors[0].shape
        (True, (3, 3))

    Raises:
        DecompositionError: if the tensor is not real and finite, or there is nothing to do.
        TooLargeError: if there are more unknowns than the options allow.

    Reference:
        Phan, Tichavský & Cichocki (2013), arXiv:1205.2584.
    """
    unit, scale = to_unit(to_array(tensor, who="fit_cp"))
    if num_components < 1:
        raise DecompositionError(f"fit_cp needs at least 1 component, got {num_components}.")
    if scale == 0:
        zeros = tuple(numpy.zeros((size, num_components)) for size in unit.shape)
        return CPFit(zeros, 0.0, 0.0)
    core, bases = compress(unit)
    _require_room(core.shape, num_components, options)
    given = None if start is None else _in_bases(start, bases, scale, unit.shape)
    best: CPFit | None = None
    for begin in _starts(core, given, num_components, options):
        fit = _descend(unit, scale, (core, bases), begin, options)
        if report is not None:
            report(fit)
        if fit.is_decomposition(options):
            return fit
        if best is None or fit.relative_error < best.relative_error:
            best = fit
    if best is None:
        raise DecompositionError("fit_cp needs a start: give one, or num_restarts of at least 1.")
    return best


def measure_fit(unit: Reals, scale: float, factors: Factors, num_iterations: int = 0) -> CPFit:
    """A fit of a tensor, from factors of that tensor over its Frobenius norm."""
    share = scale ** (1 / len(factors))
    return CPFit(
        tuple(factor * share for factor in factors),
        float(numpy.linalg.norm(compose(factors) - unit)),
        float(component_norms(factors).max(initial=0.0)),
        num_iterations,
    )


def _require_room(shape: tuple[int, ...], num_components: int, options: FitOptions) -> None:
    unknowns = sum(shape) * num_components
    if unknowns > options.max_unknowns:
        raise TooLargeError(
            what=f"fit_cp of {num_components} components ({unknowns:,} unknowns)",
            entries=unknowns**2,
            limit=options.max_unknowns**2,
            instead="Take fewer components, or raise max_unknowns.",
        )


def _in_bases(start: Factors, bases: Factors, scale: float, shape: tuple[int, ...]) -> Factors:
    sizes = tuple(len(factor) for factor in start)
    if sizes != shape or len({factor.shape[1] for factor in start}) != 1:
        raise DecompositionError(
            f"fit_cp: a start for shape {shape} needs one factor (size, count) for each position, "
            f"got shapes {[factor.shape for factor in start]}."
        )
    share = scale ** (-1 / len(shape))
    return tuple(basis.T @ factor * share for basis, factor in zip(bases, start, strict=True))


def _starts(
    core: Reals, given: Factors | None, num_components: int, options: FitOptions
) -> Iterator[Factors]:
    if given is not None:
        generator = numpy.random.default_rng([options.seed, num_components])
        yield resize(core, given, num_components, generator)
    for restart in range(options.num_restarts):
        generator = numpy.random.default_rng([options.seed, num_components, restart])
        yield random_start(core.shape, num_components, generator)


def _descend(
    unit: Reals,
    scale: float,
    compressed: tuple[Reals, Factors],
    start: Factors,
    options: FitOptions,
) -> CPFit:
    core, bases = compressed
    stopping = Stopping(
        # Half, so that the rounding of the bases cannot spoil it.
        options.relative_error / 2,
        options.max_component_norm,
        options.max_iterations,
        options.least_gain,
    )
    end = descend(core, start, stopping)
    factors = tuple(basis @ factor for basis, factor in zip(bases, end.factors, strict=True))
    return measure_fit(unit, scale, factors, end.num_iterations)


# --- The damped normal equations of a sum of outer products, solved without forming their matrix


# Steps need no better solution: the next one starts from other factors.
_RELATIVE_RESIDUAL = 0.02
_MAX_ITERATIONS = 30


@dataclass(frozen=True, eq=False)
class NormalOperator:
    """J^T J at given factors, as an operator on stacked factors (sum of sizes, num_components)."""

    factors: Factors

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """The rows of each factor within a stack."""
        ends = numpy.cumsum([0, *(len(factor) for factor in self.factors)])
        return tuple(slice(*pair) for pair in pairwise(ends))

    @cached_property
    def _grams(self) -> Factors:
        return tuple(factor.T @ factor for factor in self.factors)

    def gram_without(self, *positions: int) -> Reals:
        """The entrywise product of the factors' Gram matrices but those of some positions."""
        count = self.factors[0].shape[1]
        product = numpy.ones((count, count))
        for position, gram in enumerate(self._grams):
            if position not in positions:
                product = product * gram
        return product

    @cached_property
    def _diagonal(self) -> Factors:
        return tuple(self.gram_without(position) for position in range(len(self.factors)))

    @cached_property
    def _off_diagonal(self) -> dict[tuple[int, int], Reals]:
        every = range(len(self.factors))
        upper = {(k, m): self.gram_without(k, m) for k in every for m in every if k < m}
        return upper | {(m, k): gram for (k, m), gram in upper.items()}

    def apply(self, stack: Reals) -> Reals:
        r"""Multiply a stack of factors V by J^T J.

        .. math:: (J^T J V)^{(k)} = V^{(k)} \Gamma^{(k)} + F^{(k)} \sum_{l \ne k}
                  (\Gamma^{(kl)} \circ F^{(l)T} V^{(l)})^T
        """
        parts = [stack[rows] for rows in self.slices]
        inner = [factor.T @ part for factor, part in zip(self.factors, parts, strict=True)]
        result = numpy.empty_like(stack)
        for position, rows in enumerate(self.slices):
            mixed = numpy.zeros_like(self._diagonal[position])
            for other, gram in enumerate(inner):
                if other != position:
                    mixed += self._off_diagonal[position, other] * gram
            result[rows] = parts[position] @ self._diagonal[position]
            result[rows] += self.factors[position] @ mixed.T
        return result

    def inverse_blocks(self, damping: float) -> Factors | None:
        """The inverse of the damped diagonal block of each position: the preconditioner."""
        identity = numpy.eye(self.factors[0].shape[1])
        try:
            roots = [numpy.linalg.cholesky(block + damping * identity) for block in self._diagonal]
        except numpy.linalg.LinAlgError:
            return None  # rounding made one indefinite: more damping is needed
        return tuple(cho_solve((root, True), identity) for root in roots)


def matrix_free_equations(factors: Factors) -> Solve:
    """Solve the damped normal equations by preconditioned conjugate gradients, inexactly.

    Reference:
        Sorber, Van Barel & De Lathauwer (2013), Optimization-based algorithms for tensor
        decompositions, Sec. 4, doi:10.1137/120868323.
    """
    operator = NormalOperator(factors)

    def solve(slope: Reals, damping: float) -> Reals | None:
        blocks = operator.inverse_blocks(damping)
        if blocks is None:
            return None
        solution = conjugate_gradients(
            lambda stack: operator.apply(stack) + damping * stack,
            lambda stack: _blockwise(operator, blocks, stack),
            slope.reshape(-1, factors[0].shape[1]),
            relative_residual=_RELATIVE_RESIDUAL,
            max_iterations=_MAX_ITERATIONS,
        )
        return -solution.ravel()

    return solve


def _blockwise(operator: NormalOperator, blocks: Factors, stack: Reals) -> Reals:
    return numpy.concatenate(
        [stack[rows] @ block for rows, block in zip(operator.slices, blocks, strict=True)]
    )
