"""Tensors as few outer products, at the sizes of real weights."""

import math
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from rankscope.decompositions.computing import Scaled, frobenius_norm, to_scaled
from rankscope.decompositions.cp_candidates import Candidate, Solver, sufficient_components
from rankscope.decompositions.cp_search import DEFAULT_CP, CPOptions, search_cp
from rankscope.decompositions.factors import Reals, balance
from rankscope.decompositions.truncation import RelativeError, Truncation, bond_sizes


@dataclass(frozen=True, eq=False)
class CP:
    """A sum of outer products of vectors, one column of each factor.

    Args:
        factors: one (size, num_components) for each position; the vectors of a component have
            one length.
        relative_error: Frobenius norm of the difference, measured entry by entry, over that of
            the tensor.
        largest_component_norm: Frobenius norm of the largest component over that of the tensor;
            far above 1, components cancel each other.
        solver: what found it.
    """

    factors: tuple[Tensor, ...]
    relative_error: float
    largest_component_norm: float
    solver: Solver

    @property
    def num_components(self) -> int:
        """How many outer products are added up."""
        return self.factors[0].shape[1]

    @property
    def bonds(self) -> tuple[int]:
        """The number of components, which join all factors."""
        return (self.num_components,)

    @property
    def num_parameters(self) -> int:
        """Of all factors."""
        return sum(factor.numel() for factor in self.factors)

    def to_dense(self) -> Tensor:
        """The sum as a tensor."""
        return component_sum(self.factors)


def decompose_cp(tensor: Tensor, truncation: Truncation, *, options: CPOptions = DEFAULT_CP) -> CP:
    r"""Approximate a tensor by a sum of outer products of vectors.

    .. math:: T_{j_1 \dots j_N} \approx \sum_{s=1}^{R} \prod_{k=1}^{N} F^{(k)}_{j_k s}

    No method finds the best sum for sure, and there may be none. From every start, alternating
    least squares with line search is followed by Gauss-Newton; what leaves the least error wins.
    There is one bond, R. For an error, R is doubled until it suffices, then halved between: a
    smaller one may exist that the search did not find.

    Args:
        tensor: of order 2 or more.
        truncation: of the number of components.
        options: of the search.

    Example:
        >>> from rankscope.decompositions.truncation import MaxBond
        >>> found = decompose_cp(torch.ones(4, 5, 6), MaxBond(2))
        >>> [tuple(factor.shape) for factor in found.factors]
        [(4, 2), (5, 2), (6, 2)]

    Raises:
        DecompositionError: if the tensor is none of finite floating-point numbers, or the
            truncation does not fit.

    Reference:
        Kolda & Bader (2009), Sec. 3, doi:10.1137/07070111X; Phan, Tichavský & Cichocki (2013),
        arXiv:1205.2584; Sorber, Van Barel & De Lathauwer (2013), doi:10.1137/120868323.
    """
    scaled = to_scaled(tensor, truncation, who="decompose_cp", least_order=2)
    norm = frobenius_norm(scaled.unit)
    array: Reals = scaled.unit.double().cpu().numpy() / (norm or 1.0)
    if isinstance(truncation, RelativeError):
        found = _fewest(array, truncation.error, options)
    else:
        sizes = tuple(tensor.shape)
        (num_components,) = bond_sizes(
            truncation,
            (sufficient_components(sizes),),
            lambda bonds: bonds[0] * sum(sizes),
            num_entries=math.prod(sizes),
            who="decompose_cp",
        )
        found = _searched(array, num_components, options)
    return _result(scaled, norm, found)


def component_sum(factors: tuple[Tensor, ...]) -> Tensor:
    """Add up the outer products of the factors' columns.

    Reference:
        Kolda & Bader (2009), Eq. 3.4, doi:10.1137/07070111X.
    """
    product = factors[0].new_ones(1, factors[0].shape[1])
    for factor in factors[:-1]:
        product = (product[:, None, :] * factor).flatten(0, 1)
    return (product @ factors[-1].T).reshape([len(factor) for factor in factors])


def _searched(array: Reals, num_components: int, options: CPOptions) -> Candidate:
    if not array.any():
        zeros = tuple(numpy.zeros((size, num_components)) for size in array.shape)
        return Candidate(zeros, 0.0, Solver.FIBRES)
    return search_cp(array, num_components, options)


def _fewest(array: Reals, error: float, options: CPOptions) -> Candidate:
    most = sufficient_components(array.shape)
    too_few, enough = 0, 1
    found = _searched(array, enough, options)
    while found.error > error and enough < most:
        too_few, enough = enough, min(2 * enough, most)
        found = _searched(array, enough, options)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        tried = _searched(array, middle, options)
        if tried.error <= error:
            found, enough = tried, middle
        else:
            too_few = middle
    return found


def _result(scaled: Scaled, norm: float, found: Candidate) -> CP:
    share = (scaled.scale * norm) ** (1 / len(found.factors))
    factors = [torch.from_numpy(factor * share) for factor in balance(found.factors)]
    return CP(
        tuple(factor.to(scaled.unit) for factor in factors),
        found.error,
        found.largest_component_norm,
        found.solver,
    )
