"""r-TR: the paired tensor (S₁T₁, S₂T₂, S₃T₃, kernel) as a tensor ring."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rankscope.decompositions.tensor_ring import decompose_tensor_ring
from rankscope.decompositions.truncation import Bonds
from rankscope.layers.formats.format import Ranks, WeightShape
from rankscope.layers.formats.interpolation import interpolated_errors
from rankscope.layers.formats.reshaped import ReshapedFormat, has_kernel
from rankscope.layers.formats.reshaped_tensor_train import train_bonds

_SHORT = 2  # sweeps of a fit that only estimates an error


@dataclass(frozen=True)
class ReshapedTensorRingFormat(ReshapedFormat):
    r"""The train of `ReshapedTensorTrainFormat` with its ends joined by one more bond.

    .. math:: K_{(abc)(ijk)z} = \sum_{pqru} G^1_{uiap} G^2_{pjbq} G^3_{qkcr} C_{rzu}

    Ranks are the bonds behind each core; the last one, u, closes the ring.

    Reference:
        Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352. Wang, Sun, Eriksson, Wang &
        Aggarwal (2018), arXiv:1802.09052, have one core for each S_l and each T_l: other weights.
    """

    name: ClassVar[str] = "r-tensor-ring"
    num_factors: ClassVar[int] = 3
    reverses_outputs: ClassVar[bool] = True

    def legs(self, shape: WeightShape) -> dict[str, str]:
        cores = {"core_1": "uiap", "core_2": "pjbq"}
        if has_kernel(shape):
            return {**cores, "core_3": "qkcr", "kernel": "rzu"}
        return {**cores, "core_3": "qkcu"}

    def bonds(self, shape: WeightShape) -> str:
        return "pqru" if has_kernel(shape) else "pqu"

    def full_ranks(self, shape: WeightShape) -> Ranks:
        """Those of the train: without a closing bond a ring is one."""
        return (*train_bonds(self.paired_sizes(shape)), 1)

    def max_ranks(self, shape: WeightShape) -> Ranks:
        """Those of the train, and its largest for the closing bond."""
        bonds = train_bonds(self.paired_sizes(shape))
        return (*bonds, max(bonds))

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        ring = decompose_tensor_ring(self.paired(weight), Bonds(ranks), seed=seed)
        return self.unpaired(ring.cores, WeightShape.of(weight))

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Estimates, interpolated from a few short fits; `decompose` looks longer."""
        shape, tensor = WeightShape.of(weight), self.paired(weight)
        return interpolated_errors(
            [self.num_parameters(shape, ranks) for ranks in ladder],
            lambda place: (
                decompose_tensor_ring(
                    tensor, Bonds(ladder[place]), sweeps=_SHORT, seed=seed
                ).relative_error
            ),
            num_entries=shape.num_parameters,
        )
