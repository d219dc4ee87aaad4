"""One core for the inputs, each position of the kernel, and the outputs, in a row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rankscope.decompositions.tensor_train import decompose_tensor_train, limited_bonds
from rankscope.decompositions.truncation import Bonds
from rankscope.decompositions.tucker_energy import TuckerEnergy, tucker_energy
from rankscope.layers.formats.format import Ranks, WeightShape
from rankscope.layers.formats.plain import Legs, PlainFormat
from rankscope.layers.formats.spectra import tails


@dataclass(frozen=True)
class TensorTrainFormat(PlainFormat):
    r"""A tensor train over inputs, height, width and outputs, in this order.

    .. math:: K_{t s h w} = \sum_{p q r} O_{t r} W_{r q w} H_{q p h} I_{p s}

    with `input` I, `height` H, `width` W, `output` O and ranks (p, q, r): convolutions 1 x 1,
    h x 1, 1 x w, 1 x 1. A kernel with one position has no W and no r; it is Tucker-2.

    Reference:
        Oseledets (2011), Tensor-train decomposition, Thm. 2.2 and Cor. 2.4,
        doi:10.1137/090752286.
    """

    name: ClassVar[str] = "tensor-train"

    def legs(self, shape: WeightShape) -> Legs:
        if len(shape.kernel) == 1:
            return {"input": ("p", "s"), "height": ("q", "p", "h"), "output": ("t", "q")}
        return {
            "input": ("p", "s"),
            "height": ("q", "p", "h"),
            "width": ("r", "q", "w"),
            "output": ("t", "r"),
        }

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ("p", "q", "r")[: len(shape.kernel) + 1]

    def full_ranks(self, shape: WeightShape) -> Ranks:
        sizes = (shape.in_size, *shape.kernel, shape.out_size)
        cuts = range(1, len(sizes))
        return tuple(min(math.prod(sizes[:cut]), math.prod(sizes[cut:])) for cut in cuts)

    def is_useful(self, shape: WeightShape, ranks: Ranks) -> bool:
        sizes = (shape.in_size, *shape.kernel, shape.out_size)
        forth, back = limited_bonds(sizes, ranks), limited_bonds(sizes[::-1], ranks[::-1])
        return forth == ranks == back[::-1]

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        found = decompose_tensor_train(weight.movedim(0, -1), Bonds(ranks))
        first, *middle, last = found.cores
        turned = (first[0].mT, *(core.permute(2, 0, 1) for core in middle), last[..., 0].mT)
        return dict(zip(self.legs(WeightShape.of(weight)), turned, strict=True))

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Those of trains whose outer bonds are cut before the middle one.

        Their squared error has orthogonal parts, together at most the tails of all bonds: the bound
        that also holds for `decompose`, which cuts from left to right. The two differ by little.
        """
        energy = tucker_energy(weight, positions=(0, 1))
        return [_error(energy, ranks) for ranks in ladder]

    @property
    def input_core(self) -> tuple[str, int]:
        return ("input", 1)

    @property
    def output_core(self) -> str:
        return "output"


def _error(energy: TuckerEnergy, ranks: Ranks) -> float:
    outer = energy.relative_error((ranks[-1], ranks[0]))
    if len(ranks) == 2:
        return outer
    middle = energy.core[: ranks[-1], : ranks[0]].movedim(0, -1)
    tail = tails(middle.flatten(0, 1).flatten(1))
    inner = float(tail[min(ranks[1], len(tail) - 1)])
    return math.sqrt(outer**2 + inner**2 * (1 - outer**2))
