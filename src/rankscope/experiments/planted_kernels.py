"""Kernels whose structure is known, because it was planted.

The channels t of the outputs and s of the inputs are each cut in two, t = (t₁, t₂), s = (s₁, s₂).
A tile P[t₂, s₂] of small kernels, mixtures of two patterns of positions, is laid side by side along
t₁ and s₁.
"""

from enum import StrEnum

import torch
from torch import Tensor

from rankscope.layers.formats.channel_factors import balanced_factors
from rankscope.layers.formats.format import WeightShape

_PATTERNS = 2  # of positions, that the kernels of a tile are mixed from
_COMPONENTS = 3  # of a kernel of low rank
_NOISE = 0.01  # relative to the kernel: nothing real is exact


class Structure(StrEnum):
    """What is planted.

    Periodic: the tile is repeated as it is (plain Tucker can write that too, as soon as its ranks
    reach the channels of the tile). Modulated: every copy of the tile is multiplied by a number of
    its own. Low rank: a sum of three products of vectors over t, s and the positions, what the
    plain forms are made for. Random: nothing.
    """

    PERIODIC = "periodic"
    MODULATED = "modulated"
    LOW_RANK = "low rank"
    RANDOM = "random"


def planted_kernel(
    structure: Structure, shape: WeightShape, *, seed: int = 0, noise: float = _NOISE
) -> Tensor:
    """A float64 kernel (out_size, in_size, *kernel) with a structure, and noise on top.

    Example:
        >>> shape = WeightShape(9, 4, (3, 3))
        >>> kernel = planted_kernel(Structure.PERIODIC, shape, noise=0.0)
        >>> torch.equal(kernel[:3, :2], kernel[3:6, 2:])
        True
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    copies_out, tile_out = balanced_factors(shape.out_size, 2)
    copies_in, tile_in = balanced_factors(shape.in_size, 2)
    if structure is Structure.RANDOM:
        return normal(*shape.sizes)
    if structure is Structure.LOW_RANK:
        sides = normal(shape.out_size, _COMPONENTS), normal(shape.in_size, _COMPONENTS)
        kernel = torch.einsum("tr,sr,r...->ts...", *sides, normal(_COMPONENTS, *shape.kernel))
    else:
        mixing = normal(tile_out, tile_in, _PATTERNS)
        tile = torch.einsum("cdr,r...->cd...", mixing, normal(_PATTERNS, *shape.kernel))
        is_periodic = structure is Structure.PERIODIC
        copies = normal(copies_out, copies_in)
        copies = torch.ones_like(copies) if is_periodic else copies
        kernel = torch.einsum("ab,cd...->acbd...", copies, tile).reshape(shape.sizes)
    disturbance = normal(*shape.sizes)
    share = noise * float(kernel.norm() / disturbance.norm())
    return kernel + share * disturbance
