"""Two factors: a matrix as a product, a kernel as two thin convolutions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from rankscope.decompositions.svd import decompose_svd
from rankscope.decompositions.truncation import MaxBond
from rankscope.layers.formats.format import Cores, Ranks, WeightShape, Window
from rankscope.layers.formats.plain import KERNEL, Legs, PlainFormat
from rankscope.layers.formats.spectra import tails


@dataclass(frozen=True)
class SVDFormat(PlainFormat):
    r"""The truncated singular value decomposition of one matrix.

    .. math:: K_{t s h w} = \sum_r L_{t r w} R_{r s h}

    with `left` L and `right` R, the singular values split evenly between them. The matrix is
    (out_size w) x (in_size h): a kernel becomes an h x 1 convolution and then a 1 x w one. A matrix
    has neither h nor w, a kernel with one position only h.

    Reference:
        Jaderberg, Vedaldi & Zisserman (2014), Sec. 2.1 (scheme 2), arXiv:1405.3866.
    """

    name: ClassVar[str] = "svd"

    def legs(self, shape: WeightShape) -> Legs:
        inner, outer = KERNEL[:1][: len(shape.kernel)], KERNEL[1 : len(shape.kernel)]
        return {"right": ("r", "s", *inner), "left": ("t", "r", *outer)}

    def bonds(self, shape: WeightShape) -> tuple[str, ...]:
        return ("r",)

    def refusal(self, shape: WeightShape) -> str | None:
        """Matrices, and kernels with one or two positions, can be written so."""
        if len(shape.kernel) > 2:
            return f"its kernel has {len(shape.kernel)} positions, and at most two are supported."
        return None

    def full_ranks(self, shape: WeightShape) -> Ranks:
        inner, outer = shape.kernel[:1], shape.kernel[1:]
        return (min(shape.in_size * math.prod(inner), shape.out_size * math.prod(outer)),)

    def fit(self, weight: Tensor, ranks: Ranks, *, seed: int) -> dict[str, Tensor]:
        shape = WeightShape.of(weight)
        found = decompose_svd(_matrix(weight), MaxBond(ranks[0]))
        roots = found.singular_values.sqrt()
        left = (found.left * roots).reshape(shape.out_size, *shape.kernel[1:], ranks[0])
        right = (roots[:, None] * found.right).reshape(ranks[0], shape.in_size, *shape.kernel[:1])
        return {"right": right, "left": left.movedim(-1, 1)}

    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """Exact, from one spectrum: the discarded singular values."""
        tail = tails(_matrix(weight))
        return [float(tail[rank]) for (rank,) in ladder]

    def apply(
        self,
        inputs: Tensor,
        cores: Cores,
        shape: WeightShape,
        window: Window,
        bias: Tensor | None = None,
    ) -> Tensor:
        if shape.kernel:
            return super().apply(inputs, cores, shape, window, bias)
        return functional.linear(functional.linear(inputs, cores["right"]), cores["left"], bias)

    def rows(self, cores: Cores, shape: WeightShape, numbers: Tensor) -> Tensor:
        return functional.embedding(numbers, cores["left"]) @ cores["right"]

    @property
    def input_core(self) -> tuple[str, int]:
        return ("right", 1)

    @property
    def output_core(self) -> str:
        return "left"


def _matrix(weight: Tensor) -> Tensor:
    """(out_size w) x (in_size h)."""
    matrix = weight.movedim(3, 1) if weight.ndim == 4 else weight
    return matrix.reshape(math.prod(matrix.shape[: max(1, weight.ndim - 2)]), -1)
