"""Shallow networks: one hidden layer of products, whose coefficients are a CP decomposition."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy
import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Arithmetic, Modulo
from rankscope.architectures.network import PairwiseFunction, PolynomialNetwork, Setting
from rankscope.architectures.sizes import require_sizes
from rankscope.bounds.shallow import shallow_lower_bound, shallow_upper_bound
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.decompositions import cp
from rankscope.diagrams.parts import Node, Role
from rankscope.separation.measuring.split_function import Residues, SplitFunction
from rankscope.separation.partition import Partition
from rankscope.theorem import LowerBound, UpperBound


class Shallow(PolynomialNetwork):
    r"""A weighted sum of channels, each a product over all inputs.

    .. math:: y = \sum_{z=1}^Z a_z \prod_i \langle v^{z,i}, f(x^i) \rangle

    The inputs are the feature vectors f(x^i).

    Args:
        order: number of inputs.
        size: of a feature vector, M.
        channels: number of products, Z.
        generator: where the initial weights come from; factors at unit vectors are near 1.

    Example:
        >>> Shallow(order=5, size=2, channels=3)(torch.ones(7, 5, 2)).shape
        torch.Size([7])

    Raises:
        SizeError: if a size is not positive or the order is below 2.

    Reference:
        Cohen & Shashua (2017), arXiv:1605.06743.
    """

    family = "shallow"

    def __init__(
        self,
        *,
        order: int,
        size: int,
        channels: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require_sizes("Shallow", least=2, order=order)
        require_sizes("Shallow", size=size, channels=channels)
        self.order, self.size, self.channels = order, size, channels
        self.num_positions, self.input_size = order, size
        noise = torch.randn(order, channels, size, generator=generator) / math.sqrt(order)
        self.factors = nn.Parameter(1 + noise)
        self.mixing = nn.Parameter(torch.randn(channels, generator=generator) / math.sqrt(channels))

    @property
    def settings(self) -> dict[str, Setting]:
        """Order, size and channels."""
        return {"order": self.order, "size": self.size, "channels": self.channels}

    @property
    def weight_degree(self) -> int:
        """One factor for each input, and the mixing weight."""
        return self.order + 1

    @property
    def input_degree(self) -> int:
        """The output is linear in each input."""
        return self.order

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """The products of all channels, mixed."""
        products = self.products(numbers, weights, inputs, tuple(range(self.order)))
        return numbers.contract("bz,z->b", products, weights["mixing"])

    def products(
        self,
        numbers: Arithmetic,
        weights: Mapping[str, Tensor],
        inputs: Tensor,
        positions: tuple[int, ...],
    ) -> Tensor:
        """The channels (batch, channels) over some positions, whose inputs are given in order."""
        found = inputs.new_ones(len(inputs), self.channels)
        for place, position in enumerate(positions):
            factor = numbers.contract("bm,zm->bz", inputs[:, place], weights["factors"][position])
            found = numbers.multiply(found, factor)
        return found

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        """One: the output is linear in each input of the right side."""
        return (len(partition.right),)

    def upper_bound(self, partition: Partition) -> UpperBound:
        """As many products as there are channels, or as the smaller side has coordinates."""
        self.require_covered(partition)
        return shallow_upper_bound(
            num_channels=self.channels,
            num_templates=self.size,
            num_left=len(partition.left),
            num_right=len(partition.right),
        )

    def lower_bound(self, partition: Partition) -> LowerBound:
        """The same number: almost all weights attain it."""
        self.require_covered(partition)
        return shallow_lower_bound(
            num_channels=self.channels,
            num_templates=self.size,
            num_left=len(partition.left),
            num_right=len(partition.right),
        )

    def diagram(self) -> Diagram:
        """The CP form with an input on each site: rows of the array `x` (order, size)."""
        form = cp(order=self.order, sizes=self.size, cp_rank=self.channels)
        factors = [
            replace(factor, indices=factor.indices[::-1], array="factors", rows=(place, place + 1))
            for place, factor in enumerate(form.nodes)
        ]
        inputs = [
            Node(f"x{i}", (f"i{i}",), Role.DATA, rf"\mathbf{{x}}_{{{i}}}", "x", (i - 1, i))
            for i in range(1, self.order + 1)
        ]
        return replace(
            form,
            name=self.family,
            nodes=(Node("mixing", ("r",), label=r"\mathbf{a}"), *factors, *inputs),
            output=(),
            title=f"Shallow network of order {self.order}",
        )

    def split_class(self) -> Callable[..., SplitFunction]:
        """The output as a function of the two sides, which meet in the channels only."""
        return ShallowFunction


class ShallowFunction(PairwiseFunction):
    """A shallow network on pairs of points: one matrix product over the channels."""

    network: Shallow

    def paired(self, left: Residues, right: Residues) -> Residues:
        numbers = Modulo(self.prime)
        weights = {name: torch.from_numpy(array) for name, array in self.weights.items()}
        rows, columns = (
            self.network.products(numbers, weights, torch.from_numpy(points), positions)
            for points, positions in ((left, self.partition.left), (right, self.partition.right))
        )
        mixed = numbers.multiply(rows, weights["mixing"])
        return numpy.asarray(numbers.contract("pz,qz->pq", mixed, columns).numpy())
