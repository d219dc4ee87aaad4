"""What a format is: a way to write a weight as small tensors, and to use it without the weight.

Five objects meet in this room. `WeightShape` and `Window` describe what is to be written and how it
is used; a `Format` turns a weight into named cores, cores into a weight, and cores and inputs into
outputs; the layers (`FactorizedLinear`, `FactorizedConv2d`, ...) hold the cores as parameters.

    cores = format.decompose(linear.weight, (8,))
    format.apply(inputs, cores, shape, Window())       # never builds the weight
    format.to_dense(cores, shape)                      # builds it, by another route
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rankscope.diagrams.diagram import Diagram
from rankscope.errors import LayerError

Ranks = tuple[int, ...]
Cores = Mapping[str, Tensor]


@dataclass(frozen=True)
class WeightShape:
    """A weight (out_size, in_size, *kernel): a matrix has no kernel, a convolution one or two.

    Of a convolution in groups it is the weight of one group.

    Example:
        >>> WeightShape(64, 32, (3, 3)).num_parameters
        18432
    """

    out_size: int
    in_size: int
    kernel: tuple[int, ...] = ()

    @classmethod
    def of(cls, weight: Tensor) -> "WeightShape":
        """The shape of a weight as PyTorch stores it."""
        out_size, in_size, *kernel = weight.shape
        return cls(out_size, in_size, tuple(kernel))

    @property
    def sizes(self) -> tuple[int, ...]:
        """As PyTorch orders them."""
        return (self.out_size, self.in_size, *self.kernel)

    @property
    def num_parameters(self) -> int:
        """Of the weight itself, without a bias."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Window:
    """How a kernel moves over its input; a matrix has none of it.

    Args:
        stride: one for each position of the kernel.
        padding: zeros on both sides, one number for each position.
        dilation: one for each position.
        groups: cores then hold those of all groups, one after the other along their first position.
    """

    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1

    def output_sizes(self, input_sizes: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
        """The size of the output along each position."""
        steps = zip(input_sizes, kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in steps)


class Format(ABC):
    """A way to write a weight as small tensors. Subclasses are frozen dataclasses."""

    name: ClassVar[str]  # as the command line says it: "svd", "r-tensor-train", ...

    @abstractmethod
    def refusal(self, shape: WeightShape) -> str | None:
        """Why a weight of this shape cannot be written so; None if it can."""

    @abstractmethod
    def full_ranks(self, shape: WeightShape) -> Ranks:
        """Ranks with which every weight can be written exactly (of CP: that surely suffice)."""

    def max_ranks(self, shape: WeightShape) -> Ranks:
        """Ranks above which nothing is gained; those that `check` allows."""
        return self.full_ranks(shape)

    def check(self, shape: WeightShape, ranks: Ranks) -> None:
        """Refuse a weight that cannot be written so, and ranks that do not fit it.

        Raises:
            LayerError: with the reason, or with the ranks given and the largest ones.
        """
        refusal = self.refusal(shape)
        if refusal is not None:
            raise LayerError(f"{self.name}: a weight of shape {shape.sizes} is refused: {refusal}")
        largest = self.max_ranks(shape)
        fits = len(ranks) == len(largest) and all(
            1 <= rank <= limit for rank, limit in zip(ranks, largest, strict=True)
        )
        if not fits:
            raise LayerError(
                f"{self.name}: a weight of shape {shape.sizes} needs {len(largest)} rank(s), "
                f"from 1 to {largest}, got {ranks}."
            )

    @abstractmethod
    def core_shapes(self, shape: WeightShape, ranks: Ranks) -> dict[str, tuple[int, ...]]:
        """The shape of each core, in the order in which `apply` uses them."""

    @abstractmethod
    def decompose(self, weight: Tensor, ranks: Ranks, *, seed: int = 0) -> dict[str, Tensor]:
        """The cores, of the weight's dtype, computed in float64 (float32 for large weights)."""

    @abstractmethod
    def errors(self, weight: Tensor, ladder: Sequence[Ranks], *, seed: int = 0) -> list[float]:
        """The relative Frobenius error at each of several ranks, cheaper than one by one.

        Formats without an optimal truncation may interpolate from a few fits (then an estimate).
        """

    @abstractmethod
    def to_dense(self, cores: Cores, shape: WeightShape) -> Tensor:
        """The weight (out_size, in_size, *kernel) of one group, by one einsum over the cores."""

    @abstractmethod
    def apply(
        self,
        inputs: Tensor,
        cores: Cores,
        shape: WeightShape,
        window: Window,
        bias: Tensor | None = None,
    ) -> Tensor:
        """The outputs, core by core: the weight is never built.

        Inputs are (..., in_size) for a matrix, (batch, groups * in_size, *positions) otherwise. A
        bias, one number for each output channel, is added by the last core where that is possible.
        """

    @abstractmethod
    def multiplications(
        self, shape: WeightShape, ranks: Ranks, window: Window, input_sizes: Sequence[int]
    ) -> int:
        """Multiply-adds of `apply` on one sample (one row of a matrix's inputs), all groups."""

    def activations(
        self, shape: WeightShape, ranks: Ranks, window: Window, input_sizes: Sequence[int]
    ) -> int:
        """Numbers that `apply` writes between the cores, on one sample; may be an estimate.

        As if there were, after every core but the last, the mean rank at every place.
        """
        num_between = len(self.core_shapes(shape, ranks)) - 1
        return window.groups * num_between * math.prod(input_sizes) * sum(ranks) // len(ranks)

    @abstractmethod
    def diagram(self, shape: WeightShape, ranks: Ranks) -> Diagram:
        """The weight as a network of its cores; open indices are those of the weight."""

    @property
    def input_core(self) -> tuple[str, int] | None:
        """The core, and its position, that alone carries `in_size`; None if it is cut in factors.

        A weight whitened by the inputs' covariance is decomposed as it is, and only this core is
        multiplied back.
        """
        return None

    @property
    def output_core(self) -> str | None:
        """The core whose first position alone carries `out_size`; None if it is cut in factors."""
        return None

    def rows(self, cores: Cores, shape: WeightShape, numbers: Tensor) -> Tensor:
        """Rows of a matrix, by their numbers (...), as (..., in_size); the matrix is never built.

        Raises:
            LayerError: if the format has no such way.
        """
        raise LayerError(
            f"{self.name}: a row of a matrix {shape.sizes} cannot be looked up from {len(cores)} "
            "cores without building the matrix; use svd or r-tensor-train."
        )

    def num_parameters(self, shape: WeightShape, ranks: Ranks) -> int:
        """How many numbers the cores hold together, for one group."""
        return sum(math.prod(sizes) for sizes in self.core_shapes(shape, ranks).values())

    @abstractmethod
    def largest_ranks(self, shape: WeightShape, num_parameters: int) -> Ranks | None:
        """The largest ranks whose cores hold at most so many numbers; None if not even ones do."""
