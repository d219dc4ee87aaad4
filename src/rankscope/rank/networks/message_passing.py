"""Message passing on a graph: every vertex multiplies what its neighbours and it itself send."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network, Step
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import SizeError
from rankscope.rank.bounds.graphs import (
    GraphSplit,
    label_upper_bound,
    monomial_image_lower_bound,
    monomial_image_upper_bound,
    walk_index_upper_bound,
)
from rankscope.rank.bounds.known import KnownBounds, applicable
from rankscope.rank.graphs import Graph
from rankscope.rank.measured import SplitFunction
from rankscope.rank.networks.network import Arithmetic, Setting, TokenNetwork, require_sizes
from rankscope.rank.partition import Partition
from rankscope.theorem import LowerBound, UpperBound


class MessagePassing(TokenNetwork):
    r"""Layers in which a vertex multiplies linear maps of its neighbours and of itself.

    .. math:: h_i^l = \prod_{j \in N(i) \cup \{i\}} W^l h_j^{l-1} \text{ by coordinates}, \qquad
              h_i^0 = x_i, \qquad y = h_t^L[0] \text{ or } \prod_i h_i^L[0]

    Args:
        edges: pairs of vertices, from 0; undirected, without loops.
        depth: L, every layer with a matrix of its own.
        width: d, the size of the vectors of the vertices, the inputs among them.
        num_vertices: the largest vertex and one if None; every vertex then has an edge.
        vertex: t, whose output is split; None for the product over all vertices.
        generator: where the initial weights come from.

    Example:
        >>> network = MessagePassing(edges=((0, 1), (1, 2)), depth=2, width=3, vertex=0)
        >>> network(torch.ones(5, 3, 3)).shape, network.input_degree
        (torch.Size([5]), 5)

    Raises:
        SizeError: if a size is not positive, a vertex is missing, or an edge or the output names
            one that is not there.

    Reference:
        Razin, Verbin & Cohen (2022), Sec. 3, arXiv:2211.16494; there the output is a linear form
        of the coordinates, here it is coordinate 0.
    """

    family = "graph"

    def __init__(
        self,
        *,
        edges: Sequence[Sequence[int]],
        depth: int,
        width: int,
        num_vertices: int | None = None,
        vertex: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require_sizes("MessagePassing", depth=depth, width=width)
        self.graph = Graph.from_edges(edges, num_vertices)
        count = self.graph.num_vertices
        require_sizes("MessagePassing", least=2, num_vertices=count)
        if vertex is not None and not 0 <= vertex < count:
            raise SizeError(f"MessagePassing: vertex must lie in 0..{count - 1}, got {vertex}.")
        self.num_positions, self.input_size = count, width
        self.depth, self.vertex = depth, vertex
        self.maps = nn.ParameterList(
            torch.randn(width, width, generator=generator) / width**0.5 for _ in range(depth)
        )

    @property
    def settings(self) -> dict[str, Setting]:
        """All arguments but the generator, each edge once and sorted."""
        return {
            "edges": self.graph.edges,
            "depth": self.depth,
            "width": self.input_size,
            "num_vertices": self.num_positions,
            "vertex": self.vertex,
        }

    @property
    def weight_degree(self) -> int:
        """One map for every step of every walk that ends at the output."""
        lengths = range(1, self.depth + 1)
        return sum(sum(self.graph.walks(length, self.vertex)) for length in lengths)

    @property
    def input_degree(self) -> int:
        """Walks of as many steps as there are layers that end at the output."""
        return sum(self.graph.walks(self.depth, self.vertex))

    def evaluate(
        self, numbers: Arithmetic, weights: Mapping[str, Tensor], tokens: Sequence[Tensor]
    ) -> Tensor:
        states = dict(enumerate(tokens))
        for layer in range(self.depth):
            needed = self.needed(layer + 1)
            near = self.graph.neighbourhoods
            sent = {
                vertex: numbers.contract("oi,abi->abo", weights[f"maps.{layer}"], states[vertex])
                for vertex in sorted({j for i in needed for j in near[i]})
            }
            states = {i: _product(numbers, [sent[j] for j in near[i]]) for i in needed}
        return _product(numbers, [states[i] for i in sorted(states)])[..., 0]

    def needed(self, layer: int) -> tuple[int, ...]:
        """The vertices whose vectors after a layer the output rests on."""
        counts = self.graph.walks(self.depth - layer, self.vertex)
        return tuple(vertex for vertex, count in enumerate(counts) if count)

    def program_products(self, defined: int) -> int:
        return defined

    def split_class(self) -> Callable[..., SplitFunction]:
        """The output as a function of the two sides, by straight-line programs."""
        from rankscope.rank.networks.message_passing_programs import message_passing_split

        return message_passing_split

    def graph_split(self, partition: Partition) -> GraphSplit:
        """What the bounds need to know."""
        self.require_covered(partition)
        return GraphSplit(self.graph, partition, self.depth, self.input_size, self.vertex)

    def upper_bound(self, partition: Partition) -> UpperBound:
        """The least of the bounds that apply."""
        split = self.graph_split(partition)
        image = applicable(monomial_image_upper_bound, split)
        labels = label_upper_bound(split)
        return labels if image is None or not image.magnitude.is_below(labels.magnitude) else image

    def lower_bound(self, partition: Partition) -> LowerBound | None:
        """Monomials that both sides can tell apart."""
        return applicable(monomial_image_lower_bound, self.graph_split(partition))

    def known_bounds(self, partition: Partition) -> KnownBounds:
        split = self.graph_split(partition)
        return KnownBounds(
            self.lower_bound(partition),
            walk_index_upper_bound(split),
            self.upper_bound(partition),
        )

    def diagram(self) -> Network:
        """One step for each vertex and layer that the output rests on."""
        steps = [
            Step(_name(i, layer), self._state(i, layer), _label(i, layer))
            for layer in range(1, self.depth + 1)
            for i in self.needed(layer)
        ]
        ends = tuple(
            Node(f"h{i}", ("r",), Role.DATA, _label(i, self.depth), _name(i, self.depth))
            for i in self.needed(self.depth)
        )
        unit = Node("e", ("r",), Role.DATA, r"\mathbf{e}_0", "unit")
        steps.append(Step("y", Diagram("output", (self._index("r"),), (*ends, unit), ()), "y"))
        what = "all vertices" if self.vertex is None else f"vertex {self.vertex}"
        title = f"Message passing in {self.depth} layers, output of {what}"
        return Network("graph", tuple(steps), title)

    def _state(self, vertex: int, layer: int) -> Diagram:
        """The product of what the neighbours send."""
        nodes: list[Node] = []
        indices = [self._index("r")]
        label = rf"\mathbf{{W}}^{{{layer}}}"
        for j in self.graph.neighbourhoods[vertex]:
            name = f"i{j}"
            indices.append(self._index(name))
            rows, array = ((j, j + 1), "inputs") if layer == 1 else (None, _name(j, layer - 1))
            nodes.append(Node(f"h{j}", (name,), Role.DATA, _label(j, layer - 1), array, rows))
            nodes.append(Node(f"W{j}", ("r", name), Role.PARAMETER, label, f"maps.{layer - 1}"))
        return Diagram(_name(vertex, layer), tuple(indices), tuple(nodes), ("r",))

    def _index(self, name: str) -> Index:
        return Index(name, self.input_size, "D", IndexKind.FEATURE)


def _product(numbers: Arithmetic, factors: Sequence[Tensor]) -> Tensor:
    product = factors[0]
    for factor in factors[1:]:
        product = numbers.multiply(product, factor)
    return product


def _name(vertex: int, layer: int) -> str:
    return f"h{vertex}_{layer}"


def _label(vertex: int, layer: int) -> str:
    if layer == 0:
        return rf"\mathbf{{x}}_{{{vertex}}}"
    return rf"\mathbf{{h}}^{{{layer}}}_{{{vertex}}}"
