"""Edits of tensors, legs and wires."""

from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import check_size
from rankscope.diagrams.editing.document import Document, Edit, changed_to
from rankscope.diagrams.editing.finding import (
    fresh,
    fresh_leg,
    index_of,
    living,
    node_of,
    part_names,
    require_name,
    require_part,
    tidied,
    with_index,
    with_node,
    with_wire,
    without,
)
from rankscope.diagrams.editing.wholes import UseTemplate
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import DiagramError, SizeError


@dataclass(frozen=True)
class AddTensor(Edit):
    """Put in a tensor; legs that exist already are joined, new ones are open."""

    legs: tuple[str, ...] = ()
    name: str | None = None
    role: Role = Role.PARAMETER

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        name = self.name or fresh("T", part_names(diagram))
        require_name(name, "tensor")
        for leg in self.legs:
            require_name(leg, "leg")
        known = diagram.index_by_name
        new = tuple(leg for leg in dict.fromkeys(self.legs) if leg not in known)
        return changed_to(
            document,
            replace(
                diagram,
                indices=(*diagram.indices, *(Index(leg, 16) for leg in new)),
                nodes=(*diagram.nodes, Node(name, self.legs, self.role)),
                output=(*(leg for leg in diagram.output if leg not in self.legs), *new),
            ),
        )


@dataclass(frozen=True)
class AddLeg(Edit):
    """Give a tensor one more leg, which is open."""

    tensor: str
    size: int = 16

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        node = node_of(diagram, self.tensor)
        leg = fresh_leg(diagram)
        index = Index(leg, check_size("the new leg", self.size))
        return changed_to(
            document,
            replace(
                diagram,
                indices=(*diagram.indices, index),
                nodes=with_node(diagram, replace(node, indices=(*node.indices, leg))),
                output=(*diagram.output, leg),
            ),
        )


@dataclass(frozen=True)
class Remove(Edit):
    """Take out tensors, regions (their members stay) and convolutions; their wires come open."""

    names: tuple[str, ...]

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        for name in self.names:
            require_part(diagram, name)
        gone = set(self.names)
        nodes = tuple(node for node in diagram.nodes if node.name not in gone)
        held = {index for node in nodes for index in node.indices}
        convolutions = tuple(
            part
            for part in diagram.convolutions
            if part.name not in gone and {part.input, part.kernel} <= held
        )
        regions = without(diagram.regions, gone)
        kept = {*(node.name for node in nodes), *(part.name for part in convolutions)}
        return changed_to(document, tidied(diagram, nodes, convolutions, living(regions, kept)))


@dataclass(frozen=True)
class Rename(Edit):
    """Give a tensor, a region or a wire another name."""

    name: str
    to: str

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        require_name(self.to, "part")
        if self.name in diagram.index_by_name:
            if self.to in diagram.index_by_name:
                raise DiagramError(
                    f"There is a wire {self.to!r} already; connect the two to make them one."
                )
            return changed_to(document, with_wire(diagram, self.name, self.to))
        require_part(diagram, self.name)
        if self.to in part_names(diagram):
            raise DiagramError(f"There is a part {self.to!r} already; names must differ.")
        new = {self.name: self.to}
        nodes = tuple(
            replace(node, name=self.to, label=None) if node.name == self.name else node
            for node in diagram.nodes
        )
        convolutions = tuple(
            replace(part, name=new.get(part.name, part.name)) for part in diagram.convolutions
        )
        regions = tuple(
            replace(
                region,
                name=new.get(region.name, region.name),
                members=tuple(new.get(member, member) for member in region.members),
            )
            for region in diagram.regions
        )
        positions = {new.get(name, name): point for name, point in document.positions.items()}
        renamed = replace(diagram, nodes=nodes, convolutions=convolutions, regions=regions)
        return replace(changed_to(document, renamed), positions=positions)


@dataclass(frozen=True)
class SetRole(Edit):
    """Say what a tensor is for."""

    tensor: str
    role: Role

    def apply(self, document: Document) -> Document:
        node = replace(node_of(document.diagram, self.tensor), role=self.role)
        diagram = document.diagram
        return changed_to(document, replace(diagram, nodes=with_node(diagram, node)))


@dataclass(frozen=True)
class SetSize(Edit):
    """Give a symbol, or a wire by its name, a size; in a template it sets the symbol's setting."""

    name: str
    size: int

    def apply(self, document: Document) -> Document:
        template = document.template
        if template is not None and self.name in template.settings:
            settings = {**template.settings, self.name: str(self.size)}
            return UseTemplate(template.name, settings).apply(document)
        sized = document.diagram.with_sizes(**{self.name: self.size})
        return replace(document, diagram=sized)


@dataclass(frozen=True)
class SetKind(Edit):
    """Say what a wire counts, which decides its colour."""

    wire: str
    kind: IndexKind

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        index = replace(index_of(diagram, self.wire), kind=self.kind)
        return changed_to(document, replace(diagram, indices=with_index(diagram, index)))


@dataclass(frozen=True)
class Connect(Edit):
    """Make one wire of two, which is summed; with a wire that has two ends, a hyperedge.

    Raises:
        SizeError: if they have two sizes.
        DiagramError: if one of them does not exist, or both are one.
    """

    first: str
    second: str

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        one, other = index_of(diagram, self.first), index_of(diagram, self.second)
        if one == other:
            raise DiagramError(f"Wire {self.first!r} is one wire already; choose another one.")
        if one.size != other.size and None not in (one.size, other.size):
            raise SizeError(
                f"Wire {one.name!r} has size {one.size} and {other.name!r} has size {other.size}; "
                "give them one size first."
            )
        joined = with_wire(diagram, other.name, one.name)
        open_legs = tuple(leg for leg in joined.output if leg != one.name)
        return changed_to(document, replace(joined, output=open_legs))


@dataclass(frozen=True)
class Detach(Edit):
    """Take one tensor off a wire: its leg becomes a wire of its own, which is open."""

    tensor: str
    wire: str

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        node, index = node_of(diagram, self.tensor), index_of(diagram, self.wire)
        if self.wire not in node.indices:
            raise DiagramError(f"Tensor {self.tensor!r} has no leg {self.wire!r}.")
        if len(diagram.structure.owners[self.wire]) == 1:
            raise DiagramError(f"Wire {self.wire!r} has one end, there is nothing to take off.")
        leg = fresh_leg(diagram)
        place = len(node.indices) - 1 - node.indices[::-1].index(self.wire)
        indices = (*node.indices[:place], leg, *node.indices[place + 1 :])
        loosened = replace(
            diagram,
            indices=(*diagram.indices, replace(index, name=leg)),
            nodes=with_node(diagram, replace(node, indices=indices)),
            output=(*diagram.output, leg),
            regions=(),
        )
        return changed_to(
            document,
            tidied(loosened, loosened.nodes, loosened.convolutions, diagram.regions, diagram),
        )


@dataclass(frozen=True)
class SetOpen(Edit):
    """Keep a wire in the result, or sum over it."""

    wire: str
    is_open: bool

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        index_of(diagram, self.wire)
        output = tuple(leg for leg in diagram.output if leg != self.wire)
        if self.is_open:
            output = diagram.output if self.wire in diagram.output else (*output, self.wire)
        return changed_to(document, replace(diagram, output=output))
