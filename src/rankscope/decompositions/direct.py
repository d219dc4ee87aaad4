"""Decompositions that can be written down without a search."""

import math
from collections.abc import Iterator

import numpy

from rankscope.decompositions.factors import Factors, Reals
from rankscope.decompositions.tucker import compress


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
        yield _by_fibres(tensor, position)
        yield _expanded(_by_fibres(core, position), bases)
    wide = [position for position in range(tensor.ndim) if core.shape[position] > 1]
    if len(wide) <= 2:
        first = wide[0] if wide else 0
        yield _expanded(_by_singular_vectors(core, first, relative_error, least), bases)


def _by_fibres(tensor: Reals, position: int) -> Factors:
    """One component for each fibre along a position that is not 0."""
    front = numpy.moveaxis(tensor, position, 0)
    places = numpy.nonzero(numpy.any(front != 0, axis=0))
    factors = [numpy.eye(size)[:, at] for size, at in zip(front.shape[1:], places, strict=True)]
    factors.insert(position, numpy.moveaxis(tensor, position, -1)[places].T)
    return tuple(factors)


def _by_singular_vectors(
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


def _expanded(factors: Factors, bases: Factors) -> Factors:
    return tuple(basis @ factor for basis, factor in zip(bases, factors, strict=True))
