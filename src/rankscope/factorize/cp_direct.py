"""Sums of outer products that need no search, and how a candidate of a search is compared."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy
import torch

from rankscope.factorize.svd import thin_svd
from rankscope.factorize.truncation import Factors, Reals, component_norms, compose, inner
from rankscope.factorize.tucker import compress

# Nothing is left out but rounding.
_EXACT = 1e-15


class Solver(StrEnum):
    """The solver that gave a sum of outer products."""

    SINGULAR_VECTORS = "singular vectors"
    FIBRES = "fibres"
    ALTERNATING = "alternating least squares"
    PENALIZED = "alternating least squares with a penalty"
    GAUSS_NEWTON = "Gauss-Newton"
    GIVEN = "given"


@dataclass(frozen=True, eq=False)
class Candidate:
    """Factors of a tensor of Frobenius norm 1, what found them, and the error they leave."""

    factors: Factors
    error: float
    solver: Solver

    @classmethod
    def of(cls, tensor: Reals, factors: Factors, solver: Solver) -> "Candidate":
        """Measure the error entry by entry."""
        rest = compose(factors) - tensor
        return cls(factors, math.sqrt(inner(rest, rest)), solver)

    @property
    def largest_component_norm(self) -> float:
        """Norm of the largest component, relative to the norm of the tensor."""
        return float(component_norms(self.factors).max())


def sufficient_components(shape: tuple[int, ...]) -> int:
    """Number of components that suffices for every tensor of the shape: one per longest fibre.

    Example:
        >>> sufficient_components((64, 32, 9))
        288

    Reference:
        Kolda & Bader (2009), Sec. 3.1, doi:10.1137/07070111X.
    """
    return math.prod(shape) // max(shape)


def without_search(tensor: Reals, num_components: int) -> Candidate | None:
    """The best sum of so many products of a matrix, or of a tensor that surely has an exact one.

    Positions of size 1 do not count. None if a search is needed.

    Reference:
        Eckart & Young (1936), doi:10.1007/BF02288367; Kolda & Bader (2009), Sec. 3.1,
        doi:10.1137/07070111X.
    """
    if sum(size > 1 for size in tensor.shape) <= 2:
        return _by_singular_vectors(tensor, num_components)
    if num_components >= sufficient_components(tensor.shape):
        return _by_fibres(tensor, num_components)
    return None


def _by_singular_vectors(tensor: Reals, num_components: int) -> Candidate:
    # Those of size 1 come last: they take the place of a wide one that is missing.
    by_size = sorted(range(tensor.ndim), key=lambda position: tensor.shape[position] == 1)
    first, second = sorted(by_size[:2])
    left, values, right, _ = thin_svd(torch.from_numpy(tensor.reshape(tensor.shape[first], -1)))
    roots = values[:num_components].sqrt()
    factors = [numpy.ones((1, len(roots))) for _ in tensor.shape]
    factors[first] = (left[:, : len(roots)] * roots).numpy()
    factors[second] = (right[: len(roots)].T * roots).numpy()
    padded = _pad(tuple(factors), num_components)
    return Candidate.of(tensor, padded, Solver.SINGULAR_VECTORS)


def _by_fibres(tensor: Reals, num_components: int) -> Candidate:
    fewest = min(direct_decompositions(tensor, _EXACT), key=lambda factors: factors[0].shape[1])
    return Candidate.of(tensor, _pad(fewest, num_components), Solver.FIBRES)


def _pad(factors: Factors, num_components: int) -> Factors:
    """Pad factors with zero components up to a number."""
    missing = num_components - factors[0].shape[1]
    return tuple(numpy.pad(factor, ((0, 0), (0, missing))) for factor in factors)


def direct_decompositions(
    tensor: Reals, relative_error: float, *, least: int = 0
) -> Iterator[Factors]:
    """Decompositions of a tensor of Frobenius norm 1: by its fibres, and by singular vectors.

    The fibres are those along any one position, also after compression; at most the product of
    all sizes but the largest are needed. Singular vectors decompose what is really a matrix, all
    sizes but two being 1.

    Args:
        tensor: in float64.
        relative_error: what singular vectors may leave out.
        least: keep so many singular vectors even where fewer would do.
    """
    core, bases = compress(tensor)
    for position in range(tensor.ndim):
        yield _fibres_along(tensor, position)
        yield _expand(_fibres_along(core, position), bases)
    wide = [position for position in range(tensor.ndim) if core.shape[position] > 1]
    if len(wide) <= 2:
        first = wide[0] if wide else 0
        yield _expand(_few_singular_vectors(core, first, relative_error, least), bases)


def _fibres_along(tensor: Reals, position: int) -> Factors:
    """One component for each fibre along a position that is not 0."""
    front = numpy.moveaxis(tensor, position, 0)
    places = numpy.nonzero(numpy.any(front != 0, axis=0))
    factors = [numpy.eye(size)[:, at] for size, at in zip(front.shape[1:], places, strict=True)]
    factors.insert(position, numpy.moveaxis(tensor, position, -1)[places].T)
    return tuple(factors)


def _few_singular_vectors(
    tensor: Reals, position: int, relative_error: float, least: int
) -> Factors:
    """The least number of singular vectors that leave a small enough error."""
    matrix = numpy.moveaxis(tensor, position, 0).reshape(tensor.shape[position], -1)
    left, singular_values, right = numpy.linalg.svd(matrix, full_matrices=False)
    tails = numpy.sqrt(numpy.cumsum(numpy.square(singular_values)[::-1])[::-1])
    kept = min(len(tails), max(least, int((tails > relative_error).sum())))
    factors = [numpy.ones((size, kept)) for size in tensor.shape]
    factors[position] = left[:, :kept] * singular_values[:kept]
    longest = math.prod(tensor.shape) // tensor.shape[position]
    other = next(p for p, size in enumerate(tensor.shape) if p != position and size == longest)
    factors[other] = right[:kept].T
    return tuple(factors)


def _expand(factors: Factors, bases: Factors) -> Factors:
    return tuple(basis @ factor for basis, factor in zip(bases, factors, strict=True))
