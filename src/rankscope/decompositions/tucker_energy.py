"""The errors of a tensor truncated to all possible Tucker ranks at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.decompositions.computing import to_scaled
from rankscope.decompositions.svd import left_singular_vectors
from rankscope.decompositions.truncation import MaxBond
from rankscope.decompositions.tucker_form import checked_positions, expand, matricized
from rankscope.errors import DecompositionError


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
        """Of the tensor projected onto the first columns of each factor.

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
    core = expand(scaled.unit, {position: factor.T for position, factor in factors.items()})
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
