"""Tucker decompositions: truncated by ranks or error, and how the ranks are chosen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from rankscope.errors import DecompositionError
from rankscope.factorize.svd import left_singular_vectors, num_within
from rankscope.factorize.truncation import (
    Bonds,
    Factors,
    KeepParameters,
    MaxBond,
    Reals,
    RelativeError,
    Truncation,
    bond_sizes,
    frobenius_norm,
    to_scaled,
)

# --- Tensors in bases of their own: what no fibre ever reaches is left out ------------------------


def compress(tensor: Reals) -> tuple[Reals, Factors]:
    """A smaller tensor with the same decompositions, and one orthonormal basis for each position.

    The tensor is the smaller one multiplied by the (size, smaller size) bases, up to rounding.

    Reference:
        De Lathauwer, De Moor & Vandewalle (2000), A multilinear singular value decomposition,
        doi:10.1137/S0895479896305696.
    """
    bases = tuple(_basis(tensor, position) for position in range(tensor.ndim))
    core = tensor
    for position, basis in enumerate(bases):
        core = numpy.moveaxis(numpy.tensordot(core, basis, (position, 0)), -1, position)
    return core, bases


def _basis(tensor: Reals, position: int) -> Reals:
    matrix = numpy.moveaxis(tensor, position, 0).reshape(tensor.shape[position], -1)
    left, singular_values, _ = numpy.linalg.svd(matrix, full_matrices=False)
    rounding = max(matrix.shape) * float(numpy.finfo(numpy.float64).eps)
    kept = int((singular_values > rounding * singular_values[0]).sum())
    basis: Reals = left[:, : max(1, kept)]
    return basis


# --- Tensors as a small core with one factor for each position, or for some of them (Tucker-2) ----


# A sweep that gains less than this share of the squared error is the last one.
_LEAST_GAIN = 1e-3


@dataclass(frozen=True, eq=False)
class Tucker:
    """A core whose positions are multiplied by factors; positions without one are the tensor's own.

    Args:
        core: the rank at positions with a factor, the tensor's size at others.
        factors: orthonormal columns (size, rank), by position.
        relative_error: Frobenius norm of the difference, measured entry by entry, over that of
            the tensor.
        error_bound: the root of the squares that were discarded before any sweep, over the norm:
            proven never to be less than the error, rounding aside.
    """

    core: Tensor
    factors: Mapping[int, Tensor]
    relative_error: float
    error_bound: float

    @property
    def bonds(self) -> tuple[int, ...]:
        """The rank of each factor, by position."""
        return tuple(self.factors[position].shape[1] for position in sorted(self.factors))

    @property
    def num_parameters(self) -> int:
        """Number of entries of the core and all factors."""
        return self.core.numel() + sum(factor.numel() for factor in self.factors.values())

    def to_dense(self) -> Tensor:
        """The tensor that core and factors stand for."""
        return multiply_factors(self.core, self.factors)


def decompose_tucker(
    tensor: Tensor,
    truncation: Truncation,
    *,
    positions: Sequence[int] | None = None,
    sweeps: int = 10,
) -> Tucker:
    r"""Approximate a tensor by a core with orthonormal factors.

    .. math:: T \approx G \times_{p_1} U^{(p_1)} \dots \times_{p_n} U^{(p_n)}

    Positions are truncated one after the other (ST-HOSVD), whose squared error is the sum of the
    discarded squares, at most n times the least possible; sweeps of alternating orthogonal
    iteration (HOOI) then only lower it. There is one bond for each position with a factor.

    Args:
        tensor: of order 1 or more.
        truncation: the ranks, one for each of the positions, in their order.
        positions: which get a factor; all if None.
        sweeps: at most so many, fewer if the error stops falling.

    Example:
        >>> from rankscope.factorize.truncation import Bonds
        >>> truncated = decompose_tucker(torch.ones(4, 5, 3, 3), Bonds((2, 1)), positions=(0, 1))
        >>> truncated.core.shape, truncated.factors[0].shape
        (torch.Size([2, 1, 3, 3]), torch.Size([4, 2]))

    Raises:
        DecompositionError: if the tensor is none of finite floating-point numbers, or positions,
            sweeps or the truncation do not fit.

    Reference:
        Vannieuwenhoven, Vandebril & Meerbergen (2012), doi:10.1137/110836067; De Lathauwer,
        De Moor & Vandewalle (2000), doi:10.1137/S0895479898346995.
    """
    scaled = to_scaled(tensor, truncation, who="decompose_tucker")
    chosen = checked_positions(positions, tensor.ndim, who="decompose_tucker")
    if sweeps < 0:
        raise DecompositionError(f"decompose_tucker: sweeps must be at least 0, got {sweeps}.")
    if isinstance(truncation, RelativeError):
        truncated = _Truncated.within(scaled.unit, chosen, scaled.allowed(truncation.error))
    else:
        ranks = _ranks(scaled.unit, truncation, chosen)
        truncated = _Truncated.to_ranks(scaled.unit, dict(zip(chosen, ranks, strict=True)))
    core, factors = _improve(scaled.unit, truncated.core, truncated.factors, sweeps)
    whole = frobenius_norm(scaled.unit)
    return Tucker(
        core * scaled.scale,
        {position: factors[position] for position in sorted(factors)},
        scaled.relative_error(multiply_factors(core, factors)),
        math.sqrt(truncated.discarded) / whole if whole else 0.0,
    )


def multiply_factors(core: Tensor, factors: Mapping[int, Tensor]) -> Tensor:
    """Multiply positions of a core by their factors (size, rank).

    Reference:
        Kolda & Bader (2009), Sec. 2.5, doi:10.1137/07070111X.
    """
    for position, factor in factors.items():
        core = multiply(core, factor, position)
    return core


def multiply(tensor: Tensor, matrix: Tensor, position: int) -> Tensor:
    """Multiply one position of a tensor by a matrix (new size, size).

    Reference:
        Kolda & Bader (2009), Sec. 2.5, doi:10.1137/07070111X.
    """
    product: Tensor = torch.tensordot(tensor, matrix, dims=([position], [1]))
    return product.movedim(-1, position)


def matricized(tensor: Tensor, position: int) -> Tensor:
    """The matrix with one position along the rows.

    Reference:
        Kolda & Bader (2009), Sec. 2.4, doi:10.1137/07070111X.
    """
    return tensor.movedim(position, 0).reshape(tensor.shape[position], -1)


def checked_positions(positions: Sequence[int] | None, order: int, *, who: str) -> tuple[int, ...]:
    """The positions themselves, or all of them if None.

    Raises:
        DecompositionError: if one is missing from the tensor or named twice, or there are none.

    Reference:
        Kolda & Bader (2009), Sec. 2, doi:10.1137/07070111X.
    """
    chosen = tuple(range(order)) if positions is None else tuple(positions)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(order)):
        raise DecompositionError(
            f"{who} needs different positions in 0..{order - 1}, at least one, got {chosen}."
        )
    return chosen


@dataclass(frozen=True, eq=False)
class _Truncated:
    """What is left after truncating positions one after the other, and the discarded squares."""

    core: Tensor
    factors: Mapping[int, Tensor]
    discarded: float = 0.0

    @classmethod
    def to_ranks(cls, tensor: Tensor, ranks: Mapping[int, int]) -> "_Truncated":
        """The positions that shrink most come first: it makes the others cheaper."""
        truncated = cls(tensor, {})
        for position in sorted(ranks, key=lambda place: ranks[place] / tensor.shape[place]):
            left, values = left_singular_vectors(
                matricized(truncated.core, position), ranks[position]
            )
            truncated = truncated.truncated(position, left, values)
        return truncated

    @classmethod
    def within(cls, tensor: Tensor, positions: Sequence[int], allowed: float) -> "_Truncated":
        """Truncate to an error; what one position leaves of its share goes to the others."""
        truncated = cls(tensor, {})
        for step, position in enumerate(positions):
            left, values = left_singular_vectors(matricized(truncated.core, position))
            rank = num_within(values, (allowed - truncated.discarded) / (len(positions) - step))
            truncated = truncated.truncated(position, left[:, :rank], values)
        return truncated

    def truncated(self, position: int, left: Tensor, values: Tensor) -> "_Truncated":
        tail = values[left.shape[1] :].double().square().sum()
        return _Truncated(
            multiply(self.core, left.T, position),
            {**self.factors, position: left},
            self.discarded + float(tail),
        )


def _ranks(
    tensor: Tensor, truncation: MaxBond | Bonds | KeepParameters, positions: Sequence[int]
) -> tuple[int, ...]:
    sizes = [tensor.shape[position] for position in positions]
    others = tensor.numel() // math.prod(sizes)

    def count(ranks: tuple[int, ...]) -> int:
        pairs = zip(sizes, ranks, strict=True)
        return others * math.prod(ranks) + sum(size * rank for size, rank in pairs)

    return bond_sizes(truncation, sizes, count, num_entries=tensor.numel(), who="decompose_tucker")


def _improve(
    tensor: Tensor, core: Tensor, factors: Mapping[int, Tensor], sweeps: int
) -> tuple[Tensor, Mapping[int, Tensor]]:
    """Give each position in turn the best factor for those of the others."""
    square = frobenius_norm(tensor) ** 2
    missing = square - frobenius_norm(core) ** 2
    if len(factors) < 2:
        return core, factors
    for _ in range(sweeps):
        before = missing
        for position in factors:
            others = {other: factors[other].T for other in factors if other != position}
            partial = multiply_factors(tensor, others)
            rank = factors[position].shape[1]
            left, _ = left_singular_vectors(matricized(partial, position), rank)
            factors = {**factors, position: left}
            core = multiply(partial, left.T, position)
        missing = square - frobenius_norm(core) ** 2
        if before - missing <= _LEAST_GAIN * max(before, 0.0):
            break
    return core, factors


# --- The errors of a tensor truncated to all possible Tucker ranks at once ------------------------


@dataclass(frozen=True, eq=False)
class TuckerEnergy:
    """A tensor in its own singular bases, and what every truncation of them leaves out.

    Args:
        core: of the tensor's shape: expanded by all factors it is the tensor.
        factors: orthonormal (size, size), by position; the first columns matter most.
        relative_errors: one for all ranks; `[r - 1, s - 1, ...]` belongs to ranks r, s, ... of the
            positions in the order of `factors`.
    """

    core: Tensor
    factors: Mapping[int, Tensor]
    relative_errors: Tensor

    def relative_error(self, ranks: Sequence[int]) -> float:
        """Relative error of the tensor projected onto the first columns of each factor.

        Sweeps (`decompose_tucker`) come nearer at the same ranks, never less near.
        """
        sizes = tuple(self.relative_errors.shape)
        fits = len(ranks) == len(sizes) and all(
            1 <= rank <= size for rank, size in zip(ranks, sizes, strict=True)
        )
        if not fits:
            raise DecompositionError(
                f"TuckerEnergy needs one rank in 1..size for each of the sizes {sizes}, "
                f"got {tuple(ranks)}."
            )
        return float(self.relative_errors[tuple(rank - 1 for rank in ranks)])


def tucker_energy(tensor: Tensor, positions: Sequence[int] | None = None) -> TuckerEnergy:
    r"""Rotate positions of a tensor into their singular bases, and add up squares.

    The squared error of a truncation is what its corner of the core lacks,
    :math:`\|T\|^2 - \sum_{a \le r, b \le s, \dots} G_{ab\dots}^2`, for all r, s, ... one table of
    cumulative sums.

    Example:
        >>> energy = tucker_energy(torch.diag(torch.tensor([3.0, 4.0])))
        >>> round(energy.relative_error((1, 1)), 12), energy.relative_error((2, 2))
        (0.6, 0.0)

    Raises:
        DecompositionError: if the tensor is none of finite floating-point numbers, or the
            positions do not fit.

    Reference:
        De Lathauwer, De Moor & Vandewalle (2000), A multilinear singular value decomposition,
        doi:10.1137/S0895479896305696.
    """
    scaled = to_scaled(tensor, MaxBond(1), who="tucker_energy")
    chosen = checked_positions(positions, tensor.ndim, who="tucker_energy")
    factors = {
        position: left_singular_vectors(matricized(scaled.unit, position), tensor.shape[position])[
            0
        ]
        for position in chosen
    }
    core = multiply_factors(
        scaled.unit, {position: factor.T for position, factor in factors.items()}
    )
    return TuckerEnergy(core * scaled.scale, factors, _relative_errors(core, chosen))


def _relative_errors(core: Tensor, positions: Sequence[int]) -> Tensor:
    sizes = [core.shape[position] for position in positions]
    squares = core.movedim(tuple(positions), tuple(range(len(positions)))).double().square()
    kept = squares.reshape(*sizes, -1).sum(-1)
    for place in range(len(positions)):
        kept = kept.cumsum(place)
    whole = float(kept.flatten()[-1])
    if whole == 0:
        return torch.zeros_like(kept)
    # At full ranks the difference is exactly 0; elsewhere rounding may not make it negative.
    return ((whole - kept).clamp(min=0.0) / whole).sqrt()
