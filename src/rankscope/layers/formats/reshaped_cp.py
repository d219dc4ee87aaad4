"""r-CP: the paired tensor (S₁T₁, S₂T₂, kernel) as a sum of outer products."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rankscope.decompositions.cp_form import decompose_cp
from rankscope.decompositions.cp_search import CPOptions
from rankscope.decompositions.truncation import MaxBond
from rankscope.layers.formats.cp_format import LARGEST_COMPONENT, balanced_components
from rankscope.layers.formats.format import Ranks, WeightShape
from rankscope.layers.formats.interpolation import interpolated_errors
from rankscope.layers.formats.reshaped import ReshapedFormat, has_kernel


@dataclass(frozen=True)
class ReshapedCPFormat(ReshapedFormat):
    r"""Channels in two factors, a sum over r of two small matrices and a kernel.

    .. math:: K_{(ab)(ij)z} = \sum_r A_{ria} B_{rjb} C_{rz}

    with z all positions of the kernel. Of a matrix, or a kernel of one place, it is the nearest sum
    of Kronecker products, and as exact as a singular value decomposition.

    Reference:
        Su, Li, Bhattacharjee & Huang (2018), arXiv:1805.10352; Van Loan & Pitsianis (1993),
        doi:10.1007/978-94-015-8196-7_17, for matrices.
    """

    name: ClassVar[str] = "r-cp"
    num_factors: ClassVar[int] = 2
    reverses_outputs: ClassVar[bool] = False

    def legs(self, shape: WeightShape) -> dict[str, str]:
        factors = {"factor_1": "ria", "factor_2": "rjb"}
        return {**factors, "kernel": "rz"} if has_kernel(shape) else factors

    def bonds(self, shape: WeightShape) -> str:
        return "r"

    def full_ranks(self, shape: WeightShape) -> Ranks:
        """Surely enough: fibres along the largest position, one for each place of the others."""
        sizes = self.paired_sizes(shape)
        return (math.prod(sizes) // max(sizes),)

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        options = CPOptions(seed=seed, max_component_norm=LARGEST_COMPONENT)
        found = decompose_cp(self.paired(weight), MaxBond(ranks[0]), options=options)
        factors = balanced_components(found.factors)
        return self.unpaired([factor.mT[..., None] for factor in factors], WeightShape.of(weight))

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Estimates, interpolated from a few short fits; `decompose` looks longer."""
        shape, tensor = WeightShape.of(weight), self.paired(weight)
        options = CPOptions(num_starts=1, max_sweeps=10, max_iterations=0, seed=seed)
        return interpolated_errors(
            [self.num_parameters(shape, ranks) for ranks in ladder],
            lambda place: (
                decompose_cp(tensor, MaxBond(ladder[place][0]), options=options).relative_error
            ),
            num_entries=shape.num_parameters,
        )
