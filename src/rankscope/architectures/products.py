"""Fully connected networks whose layers are products of linear maps."""

import itertools
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Arithmetic, Modulo
from rankscope.architectures.network import PairwiseFunction, PolynomialNetwork, Setting
from rankscope.architectures.sizes import require_sizes
from rankscope.bounds.binomials import multiset
from rankscope.bounds.degree import fully_connected_upper_bound
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network, Step
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.separation.measuring.split_function import Residues, SplitFunction
from rankscope.separation.partition import Partition
from rankscope.theorem import UpperBound


class ProductNetwork(PolynomialNetwork):
    r"""Layers of degree δ: the entry-wise product of δ linear maps.

    .. math:: P(x) = (W_1 x) * \dots * (W_\delta x), \qquad y = (P_p \circ \dots \circ P_1)(x)_0

    Args:
        num_inputs: scalar inputs, each one position.
        degree: δ, the degree of a layer.
        depth: p, the number of layers.
        width: entries of a hidden layer; `num_inputs` if None.
        generator: where the initial weights come from.

    Example:
        >>> network = ProductNetwork(num_inputs=4, degree=3, depth=2)
        >>> network(torch.ones(5, 4, 1)).shape, network.input_degree, network.weight_degree
        (torch.Size([5]), 9, 12)

    Raises:
        SizeError: if a size is not positive, or there are fewer than two inputs.

    Reference:
        Navon (2021), Comment 3.1.
    """

    family = "polynomial"

    def __init__(
        self,
        *,
        num_inputs: int,
        degree: int,
        depth: int,
        width: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        hidden = num_inputs if width is None else width
        require_sizes("ProductNetwork", least=2, num_inputs=num_inputs)
        require_sizes("ProductNetwork", degree=degree, depth=depth, width=hidden)
        self.num_positions = num_inputs
        self.input_size = 1
        self.degree = degree
        self.depth = depth
        self.width = hidden
        # Only one entry of the last layer is the output.
        sizes = (num_inputs, *[hidden] * (depth - 1), 1)
        self.layers = nn.ParameterList(
            torch.randn(degree, output, into, generator=generator) / math.sqrt(into)
            for into, output in itertools.pairwise(sizes)
        )

    @property
    def settings(self) -> dict[str, Setting]:
        return {
            "num_inputs": self.num_positions,
            "degree": self.degree,
            "depth": self.depth,
            "width": self.width,
        }

    @property
    def weight_degree(self) -> int:
        return sum(int(self.degree**layer) for layer in range(1, self.depth + 1))

    @property
    def input_degree(self) -> int:
        return int(self.degree**self.depth)

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        forms = numbers.contract("bi,koi->bko", inputs[:, :, 0], weights["layers.0"])
        return self.finish(numbers, weights, forms)

    def finish(self, numbers: Arithmetic, weights: Mapping[str, Tensor], forms: Tensor) -> Tensor:
        """The outputs (batch,) from the maps of the first layer (batch, degree, width)."""
        values = _product(numbers, forms)
        for layer in range(1, self.depth):
            forms = numbers.contract("bi,koi->bko", values, weights[f"layers.{layer}"])
            values = _product(numbers, forms)
        return values[:, 0]

    def upper_bound(self, partition: Partition) -> UpperBound:
        """By degree; a side counts for no more variables than the first layer takes from it."""
        left, right = self._variables(partition)
        return fully_connected_upper_bound(
            num_inputs=left + right, num_left=left, degree=self.degree, depth=self.depth
        )

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        del partition
        return tuple(range(self.input_degree + 1))

    def grade_upper_bounds(self, partition: Partition) -> tuple[int, ...]:
        """The terms of the upper bound, by their degree in the right side."""
        left, right = self._variables(partition)
        counts = [
            min(multiset(left, self.input_degree - part), multiset(right, part))
            for part in self.grade_degrees(partition)
        ]
        if self.depth > 1:
            return tuple(counts)
        return tuple(min(count, math.comb(self.degree, k)) for k, count in enumerate(counts))

    def split_class(self) -> Callable[..., SplitFunction]:
        """The first layer's maps are sums of one part from each side."""
        return AdditiveFunction

    def diagram(self) -> Network:
        """One step for each layer, since its input is read δ times."""
        steps = [
            Step(f"x{layer}", self._layer(layer), rf"\mathbf{{x}}^{{{layer}}}")
            for layer in range(1, self.depth)
        ]
        steps.append(Step("y", self._layer(self.depth), "y"))
        title = f"Product network of degree {self.degree} and depth {self.depth}"
        return Network("polynomial", tuple(steps), title)

    def _variables(self, partition: Partition) -> tuple[int, int]:
        """How many independent linear forms of each side the output can depend on."""
        self.require_covered(partition)
        forms = self.degree * (self.width if self.depth > 1 else 1)
        return min(len(partition.left), forms), min(len(partition.right), forms)

    def _layer(self, layer: int) -> Diagram:
        is_last = layer == self.depth
        size = self.num_positions if layer == 1 else self.width
        indices = [
            Index(f"i{k}", size, "N" if layer == 1 else "D", IndexKind.FEATURE)
            for k in range(self.degree)
        ]
        source = "inputs" if layer == 1 else f"x{layer - 1}"
        nodes = []
        for k, index in enumerate(indices):
            held = (index.name,) if is_last else ("o", index.name)
            label = rf"\mathbf{{W}}^{{{layer}}}_{{{k}}}"
            array = f"layers.{layer - 1}"
            nodes += [
                Node(f"W{k}", held, Role.PARAMETER, label, array, (k, k + 1)),
                Node(f"x{k}", (index.name,), Role.DATA, rf"\mathbf{{x}}^{{{layer - 1}}}", source),
            ]
        output = () if is_last else ("o",)
        indices += [Index(name, self.width, "D", IndexKind.FEATURE) for name in output]
        return Diagram(f"layer{layer}", tuple(indices), tuple(nodes), output)


class AdditiveFunction(PairwiseFunction):
    """A product network on pairs of points: the first layer's maps add up over the sides."""

    network: ProductNetwork

    def paired(self, left: Residues, right: Residues) -> Residues:
        numbers = Modulo(self.prime)
        weights = {name: torch.from_numpy(array) for name, array in self.weights.items()}
        on_left, on_right = (
            numbers.contract(
                "bi,koi->bko",
                torch.from_numpy(points)[:, :, 0],
                weights["layers.0"][:, :, list(positions)],
            )
            for points, positions in ((left, self.partition.left), (right, self.partition.right))
        )
        forms = numbers.add(on_left[:, None], on_right[None]).flatten(0, 1)
        outputs = self.network.finish(numbers, weights, forms)
        return outputs.numpy().reshape(len(left), len(right))


def _product(numbers: Arithmetic, forms: Tensor) -> Tensor:
    found = forms[:, 0]
    for factor in range(1, forms.shape[1]):
        found = numbers.multiply(found, forms[:, factor])
    return found
