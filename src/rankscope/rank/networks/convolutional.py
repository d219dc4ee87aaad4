"""Convolutional arithmetic circuits, deep and shallow."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy
import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.tensors import cp
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import BoundError
from rankscope.rank.bounds.networks import (
    Circuit,
    Pooling,
    convolutional_upper_bound,
    pooling_lower_bound,
    shallow_lower_bound,
    shallow_upper_bound,
)
from rankscope.rank.measured import Residues, SplitFunction
from rankscope.rank.networks.network import (
    Arithmetic,
    Modulo,
    PairwiseFunction,
    PolynomialNetwork,
    Setting,
    TokenNetwork,
    require_sizes,
)
from rankscope.rank.partition import Partition
from rankscope.theorem import LowerBound, UpperBound

# --- Convolutional arithmetic circuits: hierarchical Tucker with any pooling geometry -------------


Levels = tuple[tuple[tuple[int, ...], ...], ...]


class ConvolutionalCircuit(TokenNetwork):
    r"""Linear maps of every node, and products over windows, in turns.

    .. math:: u^{0,j} = a^{0,j} x^j, \qquad
              p^{l,k} = \prod_{j \in \text{window } k} u^{l,j}, \qquad
              u^{l+1,k} = a^{l+1,k} p^{l,k}, \qquad y = \langle a^{L}, p^{L-1,0} \rangle

    The output is multilinear in the representations x^j of the tokens, so its separation rank is
    the rank of the coefficient tensor, whatever the templates.

    Args:
        num_tokens: how many tokens there are.
        num_templates: M, the size of a token's representation.
        channels: r_0, r_1, …, one for each level: the channels that its windows multiply.
        window: neighbours in a window; only where `pooling` is not given.
        is_shared: whether the nodes of a level share one linear map.
        pooling: for each level its windows, each a tuple of positions in the level below.
        generator: where the initial weights come from.

    Example:
        >>> circuit = ConvolutionalCircuit(num_tokens=4, num_templates=3, channels=(3, 2))
        >>> circuit(torch.ones(5, 4, 3)).shape, circuit.weight_degree
        (torch.Size([5]), 7)

    Raises:
        BoundError: if the windows do not share out the tokens, the number of channel sizes is not
            that of the levels, or a size is not positive.

    Reference:
        Cohen et al. (2016), arXiv:1509.05009; Cohen & Shashua (2017), arXiv:1605.06743.
    """

    family = "convolutional"

    def __init__(  # noqa: PLR0913 - what a network is made of, all by name
        self,
        *,
        num_tokens: int,
        num_templates: int,
        channels: tuple[int, ...],
        window: int = 2,
        is_shared: bool = False,
        pooling: Levels | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        geometry = (
            Pooling.uniform(window=window, num_tokens=num_tokens)
            if pooling is None
            else Pooling(pooling)
        )
        if geometry.num_tokens != num_tokens:
            raise BoundError(
                f"ConvolutionalCircuit: the windows pool {geometry.num_tokens} tokens, "
                f"but num_tokens is {num_tokens}."
            )
        self.circuit = Circuit(geometry, num_templates, channels)
        self.num_positions = num_tokens
        self.input_size = num_templates
        self.is_shared = is_shared
        self.window = window
        self.pooling = pooling
        self.convolutions = nn.ParameterList(
            _random((output, into) if is_shared else (nodes, output, into), generator)
            for nodes, output, into in zip(
                self._num_nodes, channels, (num_templates, *channels), strict=False
            )
        )
        self.output = nn.Parameter(_random(channels[-1:], generator))

    @property
    def settings(self) -> dict[str, Setting]:
        return {
            "num_tokens": self.num_positions,
            "num_templates": self.input_size,
            "channels": self.circuit.channels,
            "window": self.window,
            "is_shared": self.is_shared,
            "pooling": self.pooling,
        }

    @property
    def weight_degree(self) -> int:
        """Every node of the tree multiplies its map once; shared maps count as often."""
        return sum(self._num_nodes) + 1

    @property
    def input_degree(self) -> int:
        return self.num_positions

    def evaluate(
        self, numbers: Arithmetic, weights: Mapping[str, Tensor], tokens: Sequence[Tensor]
    ) -> Tensor:
        nodes = list(tokens)
        for level, windows in enumerate(self.circuit.pooling.levels):
            maps = weights[f"convolutions.{level}"]
            nodes = [
                numbers.contract("oi,abi->abo", maps if self.is_shared else maps[place], node)
                for place, node in enumerate(nodes)
            ]
            nodes = [
                reduce(numbers.multiply, [nodes[member] for member in window]) for window in windows
            ]
        return numbers.contract("i,abi->ab", weights["output"], nodes[0])

    def upper_bound(self, partition: Partition) -> UpperBound:
        """Minimal cut of the tree."""
        self.require_covered(partition)
        return convolutional_upper_bound(self.circuit, partition.left)

    def lower_bound(self, partition: Partition) -> LowerBound:
        """First windows that the partition splits; holds for shared weights as well."""
        self.require_covered(partition)
        return pooling_lower_bound(self.circuit, partition.left)

    def diagram(self) -> Diagram:
        """The tree: a window is one index that its nodes and the node above hold together."""
        circuit = self.circuit
        indices = [
            Index(f"m{j}", circuit.num_templates, "M", IndexKind.FEATURE)
            for j in range(self.num_positions)
        ]
        nodes = [
            Node(f"x{j}", (f"m{j}",), Role.DATA, rf"\mathbf{{x}}_{{{j}}}", "inputs", (j, j + 1))
            for j in range(self.num_positions)
        ]
        below = [index.name for index in indices]
        for level, windows in enumerate(circuit.pooling.levels):
            above = [f"r{level}_{k}" for k in range(len(windows))]
            size = circuit.channels[level]
            indices += [Index(name, size, f"R_{level}", IndexKind.RANK) for name in above]
            joined = {member: name for name, window in zip(above, windows, strict=True)
                      for member in window}  # fmt: skip
            nodes += [self._node(level, j, (joined[j], below[j])) for j in range(len(below))]
            below = above
        nodes.append(Node("output", (below[0],), label=r"\mathbf{a}"))
        title = f"Convolutional circuit of {self.num_positions} tokens"
        return Diagram("convolutional", tuple(indices), tuple(nodes), (), title=title)

    def _node(self, level: int, place: int, held: tuple[str, str]) -> Node:
        return Node(
            f"a{level}_{place}",
            held,
            label=rf"\mathbf{{A}}^{{{level}}}_{{{place}}}",
            array=f"convolutions.{level}",
            rows=None if self.is_shared else (place, place + 1),
        )

    @property
    def _num_nodes(self) -> tuple[int, ...]:
        """How many nodes have a linear map, level by level."""
        return (self.num_positions, *(len(level) for level in self.circuit.pooling.levels[:-1]))


def _random(shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    # Outputs of unit variance for inputs of unit variance.
    return torch.randn(shape, generator=generator) / math.sqrt(shape[-1])


# --- Shallow networks: one hidden layer of products, whose coefficients are a CP decomposition ----


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
        products = inputs.new_ones(len(inputs), self.channels)
        for place, position in enumerate(positions):
            factor = numbers.contract("bm,zm->bz", inputs[:, place], weights["factors"][position])
            products = numbers.multiply(products, factor)
        return products

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        """One: the output is linear in each input of the right side."""
        return (len(partition.right),)

    def upper_bound(self, partition: Partition) -> UpperBound:
        """At most as many products as channels, or as coordinates of the smaller side."""
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
