"""r-TT: the paired tensor (S₁T₁, S₂T₂, S₃T₃, kernel) as a tensor train."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rankscope.decompositions.svd import decompose_svd
from rankscope.decompositions.tensor_train import limited_bonds
from rankscope.decompositions.truncation import MaxBond
from rankscope.decompositions.tucker_energy import TuckerEnergy, tucker_energy
from rankscope.layers.formats.format import Ranks, WeightShape
from rankscope.layers.formats.reshaped import ReshapedFormat, has_kernel
from rankscope.layers.formats.spectra import tails


@dataclass(frozen=True)
class ReshapedTensorTrainFormat(ReshapedFormat):
    r"""Channels in three factors, each pair (S_l, T_l) in one core of a train.

    .. math:: K_{(abc)(ijk)z} = \sum_{pqr} G^1_{iap} G^2_{pjbq} G^3_{qkcr} C_{rz}

    with z all positions of the kernel; of a matrix and of a kernel of one place, the third core is
    the last. Factors of the outputs run the other way, so that the products S_l T_l are balanced.

    The outer bonds are cut first, both in the paired tensor's own singular bases, then the middle
    one: the squared error is a sum of orthogonal parts, at most that of the tails of all cuts.

    Reference:
        Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352; Novikov, Podoprikhin, Osokin &
        Vetrov (2015), Sec. 3 and 4, arXiv:1509.06569, for matrices.
    """

    name: ClassVar[str] = "r-tensor-train"
    num_factors: ClassVar[int] = 3
    reverses_outputs: ClassVar[bool] = True

    def legs(self, shape: WeightShape) -> dict[str, str]:
        cores = {"core_1": "xiap", "core_2": "pjbq"}
        if has_kernel(shape):
            return {**cores, "core_3": "qkcr", "kernel": "rz"}
        return {**cores, "core_3": "qkc"}

    def bonds(self, shape: WeightShape) -> str:
        return "pqr" if has_kernel(shape) else "pq"

    def full_ranks(self, shape: WeightShape) -> Ranks:
        return train_bonds(self.paired_sizes(shape))

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        energy = self._energy(weight)
        first, last = (factor for _, factor in sorted(energy.factors.items()))
        middle = _middle(energy, ranks)
        cores = (middle,) if middle.ndim == 3 else _halves(middle, ranks[1])
        ends = (first[None, :, : ranks[0]], last[:, : ranks[-1]].mT[..., None])
        return self.unpaired((ends[0], *cores, ends[1]), WeightShape.of(weight))

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Exactly those of `decompose`: what the outer bonds discard, and then the middle one."""
        energy = self._energy(weight)
        return [_error(energy, ranks) for ranks in ladder]

    def _energy(self, weight: Tensor) -> TuckerEnergy:
        tensor = self.paired(weight)
        return tucker_energy(tensor, positions=(0, tensor.ndim - 1))


def train_bonds(sizes: Sequence[int]) -> Ranks:
    """The bonds of a train that can be any tensor of these sizes."""
    return limited_bonds(sizes, (math.prod(sizes),) * (len(sizes) - 1))


def _middle(energy: TuckerEnergy, ranks: Ranks) -> Tensor:
    """What is left between the outer bonds, with one or two positions of its own."""
    return energy.core[: ranks[0], ..., : ranks[-1]]


def _halves(middle: Tensor, bond: int) -> tuple[Tensor, Tensor]:
    """(left_bond, size, size, right_bond) cut in the middle."""
    found = decompose_svd(middle.flatten(0, 1).flatten(1), MaxBond(bond))
    roots = found.singular_values.sqrt()
    left = (found.left * roots).reshape(*middle.shape[:2], -1)
    return left, (found.right * roots[:, None]).reshape(-1, *middle.shape[2:])


def _error(energy: TuckerEnergy, ranks: Ranks) -> float:
    outer = energy.relative_error((ranks[0], ranks[-1]))
    if len(ranks) == 2:
        return outer
    tail = tails(_middle(energy, ranks).flatten(0, 1).flatten(1))
    inner = float(tail[min(ranks[1], len(tail) - 1)])
    return math.sqrt(outer**2 + inner**2 * (1 - outer**2))
