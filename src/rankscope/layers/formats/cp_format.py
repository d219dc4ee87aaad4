"""A sum of outer products: one matrix, one small kernel for each channel, one matrix."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rankscope.decompositions.cp_form import decompose_cp
from rankscope.decompositions.cp_search import CPOptions
from rankscope.decompositions.truncation import MaxBond
from rankscope.layers.formats.format import Ranks, WeightShape
from rankscope.layers.formats.interpolation import interpolated_errors
from rankscope.layers.formats.plain import KERNEL, Legs, PlainFormat

# The best sum of few components is often one of huge ones that cancel: on kernels of a ResNet-32 up
# to 10 times as large as the kernel, for 0.001 of the error. Such a layer hardly trains.
LARGEST_COMPONENT = 1.0


@dataclass(frozen=True)
class CPFormat(PlainFormat):
    r"""A CP decomposition of order 3: inputs, outputs, and all positions of the kernel in one.

    .. math:: K_{t s h w} = \sum_r O_{t r} G_{r h w} I_{r s}

    with `input` I, `kernel` G, `output` O: a 1 x 1 convolution, a depthwise one, and a 1 x 1
    convolution. The three parts of a component have the same norm.

    Reference:
        Astrid & Lee (2017), CP-decomposition with tensor power method for convolutional neural
        networks compression, arXiv:1701.07148.
    """

    name: ClassVar[str] = "cp"

    def legs(self, shape: WeightShape) -> Legs:
        kernel = KERNEL[: len(shape.kernel)]
        return {"input": ("r", "s"), "kernel": ("r", *kernel), "output": ("t", "r")}

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ("r",)

    def full_ranks(self, shape: WeightShape) -> Ranks:
        """Surely enough: fibres along the largest position, one for each place of the others."""
        sizes = (shape.in_size, shape.out_size, math.prod(shape.kernel))
        return (math.prod(sizes) // max(sizes),)

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        options = CPOptions(seed=seed, max_component_norm=LARGEST_COMPONENT)
        found = decompose_cp(_three_way(weight), MaxBond(ranks[0]), options=options)
        inputs, outputs, places = balanced_components(found.factors)
        kernel = places.mT.reshape(-1, *weight.shape[2:])
        return {"input": inputs.mT, "kernel": kernel, "output": outputs}

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Estimates, interpolated from a few short fits; `decompose` looks longer."""
        shape, tensor = WeightShape.of(weight), _three_way(weight)
        options = CPOptions(num_starts=1, max_sweeps=10, max_iterations=0, seed=seed)
        return interpolated_errors(
            [self.num_parameters(shape, ranks) for ranks in ladder],
            lambda place: (
                decompose_cp(tensor, MaxBond(ladder[place][0]), options=options).relative_error
            ),
            num_entries=shape.num_parameters,
        )

    @property
    def input_core(self) -> tuple[str, int]:
        return ("input", 1)

    @property
    def output_core(self) -> str:
        return "output"


def _three_way(weight: Tensor) -> Tensor:
    """(in_size, out_size, places)."""
    return weight.flatten(2).transpose(0, 1)


def balanced_components(factors: Sequence[Tensor]) -> list[Tensor]:
    """Each component's norm, shared evenly between its vectors."""
    norms = [torch.linalg.vector_norm(factor, dim=0) for factor in factors]
    share = torch.stack(norms).prod(dim=0) ** (1 / len(factors))
    return [
        factor * (share / norm.clamp_min(torch.finfo(norm.dtype).tiny))
        for factor, norm in zip(factors, norms, strict=True)
    ]
