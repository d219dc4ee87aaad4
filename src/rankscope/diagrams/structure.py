"""Questions about a diagram: who is inside which region, and which legs leave it.

Everything here is derived from a `Diagram`, once, and kept on it as `diagram.structure`.
`None` stands for the outermost region.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from rankscope.diagrams.parts import Convolution, Node, Region


@dataclass(frozen=True)
class Operand:
    """A finished value that takes part in a region's contraction: a node, or an inner region."""

    name: str
    indices: tuple[str, ...]


class Structure:
    """The tree of regions of one diagram, and the legs that cross it.

    Example:
        >>> from rankscope.diagrams.diagram import Diagram
        >>> from rankscope.diagrams.parts import Index, Node, Region
        >>> from rankscope.diagrams.functions import Function
        >>> layer = Diagram(
        ...     "layer",
        ...     (Index("b"), Index("f"), Index("h"), Index("o")),
        ...     (Node("X", ("b", "f")), Node("V", ("f", "h")), Node("W", ("h", "o"))),
        ...     output=("b", "o"),
        ...     regions=(Region("R", ("X", "V"), Function("relu")),),
        ... )
        >>> layer.structure.evaluation_order
        ('R', None)
        >>> layer.structure.legs["R"]
        ('b', 'h')
        >>> layer.structure.operands[None]
        (Operand(name='R', indices=('b', 'h')), Operand(name='W', indices=('h', 'o')))
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        convolutions: tuple[Convolution, ...],
        regions: tuple[Region, ...],
        output: tuple[str, ...],
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._convolutions = {convolution.name: convolution for convolution in convolutions}
        self._regions = {region.name: region for region in regions}
        self._holders: tuple[Node | Convolution, ...] = (*nodes, *convolutions)
        self._output = output

    @cached_property
    def parent(self) -> dict[str, str | None]:
        """The region that directly holds a node, convolution or region."""
        held = {m: region.name for region in self._regions.values() for m in region.members}
        everything = (*self._regions, *self._nodes, *self._convolutions)
        return {name: held.get(name) for name in everything}

    @cached_property
    def members(self) -> dict[str | None, tuple[str, ...]]:
        """Direct members; the outermost region lists regions, then nodes, then convolutions."""
        found: dict[str | None, tuple[str, ...]] = {
            region.name: region.members for region in self._regions.values()
        }
        found[None] = tuple(name for name, region in self.parent.items() if region is None)
        return found

    @cached_property
    def evaluation_order(self) -> tuple[str | None, ...]:
        """Regions in the order they must be finished: inner ones first, the outermost last."""
        # Outer before inner, last member first; reversed, that is inner before outer. A loop,
        # because a deep network nests more regions than Python recurses.
        ordered: list[str | None] = []
        waiting: list[str | None] = [None]
        while waiting:
            region = waiting.pop()
            ordered.append(region)
            waiting.extend(name for name in self.members[region] if name in self._regions)
        return tuple(reversed(ordered))

    @cached_property
    def nodes_inside(self) -> dict[str | None, tuple[str, ...]]:
        """Nodes of each region at any depth."""
        return self._inside(self._nodes)

    @cached_property
    def convolutions_inside(self) -> dict[str | None, tuple[str, ...]]:
        """Convolutions of each region at any depth."""
        return self._inside(self._convolutions)

    def _inside(self, wanted: Collection[str]) -> dict[str | None, tuple[str, ...]]:
        found: dict[str | None, tuple[str, ...]] = {}
        for region in self.evaluation_order:
            names: list[str] = []
            for member in self.members[region]:
                names.extend(found.get(member, (member,) if member in wanted else ()))
            found[region] = tuple(names)
        return found

    @cached_property
    def legs(self) -> dict[str | None, tuple[str, ...]]:
        """The legs each region offers: used outside it, or open; for None, the open legs."""
        found: dict[str | None, tuple[str, ...]] = {None: self._output}
        for region in self._regions:
            inside = {*self.nodes_inside[region], *self.convolutions_inside[region]}
            outside = set(self._output)
            ordered: dict[str, None] = {}
            for part in self._holders:
                if part.name not in inside:
                    outside.update(part.indices)
            for node in self.nodes_inside[region]:
                ordered.update(dict.fromkeys(self._nodes[node].indices))
            for convolution in self.convolutions_inside[region]:
                ordered[self._convolutions[convolution].output] = None
            found[region] = tuple(index for index in ordered if index in outside)
        return found

    @cached_property
    def operands(self) -> dict[str | None, tuple[Operand, ...]]:
        """What each region contracts: inner regions with their legs, nodes with their indices."""
        held = {name: node.indices for name, node in self._nodes.items()}
        held |= {region: self.legs[region] for region in self._regions}
        return {
            region: tuple(Operand(name, held[name]) for name in names if name in held)
            for region, names in self.members.items()
        }

    @cached_property
    def convolutions(self) -> dict[str | None, tuple[str, ...]]:
        """Convolutions that are direct members of each region."""
        wanted = self._convolutions
        return {
            region: tuple(name for name in names if name in wanted)
            for region, names in self.members.items()
        }

    @cached_property
    def owners(self) -> dict[str, tuple[str, ...]]:
        """Nodes and convolutions that hold each index, once per axis, in order of declaration."""
        found: dict[str, list[str]] = {}
        for part in self._holders:
            for index in part.indices:
                found.setdefault(index, []).append(part.name)
        return {index: tuple(names) for index, names in found.items()}
