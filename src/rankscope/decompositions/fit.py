"""The best sum of a given number of outer products that restarts can find."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy

from rankscope.decompositions.factors import Factors, Reals, component_norms, compose
from rankscope.decompositions.gauss_newton import Stopping, descend
from rankscope.decompositions.real_tensor import RealTensor, to_array, to_unit
from rankscope.decompositions.starts import random_start, resize
from rankscope.decompositions.tucker import compress
from rankscope.errors import DecompositionError, TooLargeError

# Residuals of a float64 tensor are not meaningful below.
_LEAST_RELATIVE_ERROR = 1e-13


@dataclass(frozen=True)
class FitOptions:
    """What counts as a decomposition, and how long to look for one.

    Args:
        relative_error: largest Frobenius norm of the residual over that of the tensor.
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
        """How many outer products are added up."""
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
        fit = _descended(unit, scale, (core, bases), begin, options)
        if report is not None:
            report(fit)
        if fit.is_decomposition(options):
            return fit
        if best is None or fit.relative_error < best.relative_error:
            best = fit
    if best is None:
        raise DecompositionError("fit_cp needs a start: give one, or num_restarts of at least 1.")
    return best


def measured(unit: Reals, scale: float, factors: Factors, num_iterations: int = 0) -> CPFit:
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


def _descended(
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
    return measured(unit, scale, factors, end.num_iterations)
