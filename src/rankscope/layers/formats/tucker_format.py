"""Fewer channels in between: a small kernel, with a matrix before and after it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rankscope.decompositions.truncation import Bonds
from rankscope.decompositions.tucker_energy import tucker_energy
from rankscope.decompositions.tucker_form import decompose_tucker
from rankscope.layers.formats.format import Ranks, WeightShape
from rankscope.layers.formats.plain import KERNEL, Legs, PlainFormat


@dataclass(frozen=True)
class TuckerFormat(PlainFormat):
    r"""Tucker-2: only the channels are compressed, the kernel stays in the core.

    .. math:: K_{t s h w} = \sum_{p q} O_{t q} G_{q p h w} I_{p s}

    with `input` I, `kernel` G, `output` O and ranks (p, q): a 1 x 1 convolution, a small one with
    the whole kernel, and a 1 x 1 convolution.

    Reference:
        Kim, Park, Yoo, Choi, Yang & Shin (2016), Sec. 3.1, arXiv:1511.06530.
    """

    name: ClassVar[str] = "tucker"

    def legs(self, shape: WeightShape) -> Legs:
        kernel = KERNEL[: len(shape.kernel)]
        return {"input": ("p", "s"), "kernel": ("q", "p", *kernel), "output": ("t", "q")}

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ("p", "q")

    def full_ranks(self, shape: WeightShape) -> Ranks:
        places = math.prod(shape.kernel)
        return (
            min(shape.in_size, shape.out_size * places),
            min(shape.out_size, shape.in_size * places),
        )

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        found = decompose_tucker(weight, Bonds(ranks[::-1]), positions=(0, 1))
        return {"input": found.factors[1].mT, "kernel": found.core, "output": found.factors[0]}

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Those of the projection onto singular bases; `decompose` improves on it, never less."""
        energy = tucker_energy(weight, positions=(0, 1))
        return [energy.relative_error(ranks[::-1]) for ranks in ladder]

    @property
    def input_core(self) -> tuple[str, int]:
        return ("input", 1)

    @property
    def output_core(self) -> str:
        return "output"
