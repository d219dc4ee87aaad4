"""r-TK: Tucker form of (S₁, S₂, T₁, T₂, kernel), the kernel in the core."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rankscope.decompositions.truncation import Bonds
from rankscope.decompositions.tucker_energy import tucker_energy
from rankscope.decompositions.tucker_form import decompose_tucker
from rankscope.layers.formats.format import Ranks, WeightShape
from rankscope.layers.formats.reshaped import ReshapedFormat, has_kernel

POSITIONS = (0, 1, 2, 3)  # S₁, S₂, T₁, T₂


@dataclass(frozen=True)
class ReshapedTuckerFormat(ReshapedFormat):
    r"""Channels in two factors, each with a matrix of its own around a core with the kernel.

    .. math:: K_{(ab)(ij)z} = \sum_{pqrs} P_{ip} Q_{jq} G_{pqrsz} U_{ar} V_{bs}

    with z all positions of the kernel; of a matrix, or a kernel of one place, the core has none.
    Ranks are those of S₁, S₂, T₁ and T₂.

    Reference:
        Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352.
    """

    name: ClassVar[str] = "r-tucker"
    num_factors: ClassVar[int] = 2
    reverses_outputs: ClassVar[bool] = False

    def legs(self, shape: WeightShape) -> dict[str, str]:
        core = "pqrsz" if has_kernel(shape) else "pqrs"
        return {"in_1": "ip", "in_2": "jq", "core": core, "out_1": "ar", "out_2": "bs"}

    def bonds(self, shape: WeightShape) -> str:
        return "pqrs"

    def full_ranks(self, shape: WeightShape) -> Ranks:
        factors = self.factors(shape)
        return (*factors.in_factors, *factors.out_factors)

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        found = decompose_tucker(self._tensor(weight), Bonds(ranks), positions=POSITIONS)
        in_1, in_2, out_1, out_2 = (found.factors[position] for position in POSITIONS)
        return {"in_1": in_1, "in_2": in_2, "core": found.core, "out_1": out_1, "out_2": out_2}

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """An upper bound for all ranks from one table: sweeps come nearer, never less near."""
        energy = tucker_energy(self._tensor(weight), POSITIONS)
        return [energy.relative_error(ranks) for ranks in ladder]

    def _tensor(self, weight: Tensor) -> Tensor:
        shape = WeightShape.of(weight)
        tensor = self.factors(shape).split(weight.detach())
        return tensor if has_kernel(shape) else tensor.squeeze(-1)
