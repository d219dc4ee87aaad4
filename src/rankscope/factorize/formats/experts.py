"""Matrices side by side, such as those of experts: each with singular values of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rankscope.factorize.formats.format import Legs, Ranks, WeightShape
from rankscope.factorize.formats.plain import PlainFormat


@dataclass(frozen=True)
class SVDEachFormat(PlainFormat):
    r"""The truncated singular value decomposition of every matrix by itself, all at one rank.

    .. math:: K_{t s h} = \sum_r L_{h t r} R_{h r s}

    It stands beside the formats of a kernel with one position, which share factors among the
    places h; only layers that use one place at a time can run it (`FactorizedExperts`).
    """

    name: ClassVar[str] = "svd-each"

    def legs(self, shape: WeightShape) -> Legs:
        return {"right": ("h", "r", "s"), "left": ("h", "t", "r")}

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ("r",)

    def refusal(self, shape: WeightShape) -> str | None:
        """Matrices side by side alone can be written so."""
        if len(shape.kernel) != 1:
            return f"it has {len(shape.kernel)} positions, and matrices side by side have one."
        return None

    def full_ranks(self, shape: WeightShape) -> Ranks:
        return (min(shape.in_size, shape.out_size),)

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        del seed
        left, values, right = torch.linalg.svd(weight.movedim(2, 0).double(), full_matrices=False)
        roots = values[:, : ranks[0]].sqrt()
        return {
            "right": roots[:, :, None] * right[:, : ranks[0]],
            "left": left[:, :, : ranks[0]] * roots[:, None],
        }

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Exact, from the spectra: the discarded singular values of all matrices."""
        del seed
        squares = torch.linalg.svdvals(weight.movedim(2, 0).double()).square().sum(0)
        total = float(squares.sum())
        return [
            (float(squares[rank:].sum()) / total) ** 0.5 if total else 0.0 for (rank,) in ladder
        ]

    @property
    def input_core(self) -> tuple[str, int]:
        return ("right", 2)


SVD_EACH = SVDEachFormat()
