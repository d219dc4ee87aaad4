"""Sums of outer products that a search compares, and those that need no search."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy
import torch

from rankscope.decompositions.direct import direct_decompositions
from rankscope.decompositions.factors import Factors, Reals, component_norms, compose
from rankscope.decompositions.svd import thin_svd

# Nothing is left out but rounding.
_EXACT = 1e-15


class Solver(StrEnum):
    """What found a sum of outer products."""

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
        return cls(factors, float(numpy.linalg.norm(compose(factors) - tensor)), solver)

    @property
    def largest_component_norm(self) -> float:
        """Over the norm of the tensor."""
        return float(component_norms(self.factors).max())


def sufficient_components(shape: tuple[int, ...]) -> int:
    """With so many every tensor of the shape can be written: one for each of its longest fibres.

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
    padded = _padded(tuple(factors), num_components)
    return Candidate.of(tensor, padded, Solver.SINGULAR_VECTORS)


def _by_fibres(tensor: Reals, num_components: int) -> Candidate:
    fewest = min(direct_decompositions(tensor, _EXACT), key=lambda factors: factors[0].shape[1])
    return Candidate.of(tensor, _padded(fewest, num_components), Solver.FIBRES)


def _padded(factors: Factors, num_components: int) -> Factors:
    """With components 0 up to a number."""
    missing = num_components - factors[0].shape[1]
    return tuple(numpy.pad(factor, ((0, 0), (0, missing))) for factor in factors)
