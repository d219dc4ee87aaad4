"""Edits of tensors, legs and wires, of barriers and places, and of one tensor into several."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.diagram import Diagram, check_size
from rankscope.diagrams.editing.document import Document, Edit, Point, changed_to
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
from rankscope.diagrams.parts import Function, Index, IndexKind, Node, Region, Role
from rankscope.diagrams.rewriting import contract_nodes
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


# --- Barriers and places, and contractions that are carried out by hand ---------------------------


FARTHEST = 1000  # units of the layout's grid


@dataclass(frozen=True)
class Wrap(Edit):
    """Put parts of one region behind a barrier.

    Without `over`, a function that normalizes does so over the last leg that leaves.

    Raises:
        DiagramError: if they are not in one region, or the function does not fit.
    """

    members: tuple[str, ...]
    function: str
    over: tuple[str, ...] = ()
    scale: str | None = None

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        if not self.members:
            raise DiagramError("A barrier needs members; select tensors first.")
        for member in self.members:
            require_part(diagram, member)
        parents = {diagram.structure.parent[member] for member in self.members}
        if len(parents) > 1:
            names = ", ".join(sorted(name or "the outside" for name in parents))
            raise DiagramError(
                f"The members of a barrier must be in one region; these are in {names}."
            )
        parent = parents.pop()
        name = fresh("R", part_names(diagram))
        function = Function(self.function)
        plain = Region(name, self.members, Function("identity"))
        outer = tuple(
            replace(
                region,
                members=(*(m for m in region.members if m not in self.members), name),
            )
            if region.name == parent
            else region
            for region in diagram.regions
        )
        wrapped = replace(diagram, regions=(*outer, plain))
        leaving = wrapped.structure.legs[name]
        over = self.over or (leaving[-1:] if function.normalizes else ())
        region = replace(plain, function=function, over=over, scale=self.scale)
        return changed_to(document, replace(wrapped, regions=(*outer, region)))


@dataclass(frozen=True)
class SetBarrier(Edit):
    """Change the function of a barrier, the legs it normalizes, and its scale."""

    region: str
    function: str
    over: tuple[str, ...] = ()
    scale: str | None = None

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        if self.region not in diagram.region_by_name:
            raise DiagramError(f"There is no barrier {self.region!r}.")
        function = Function(self.function)
        over = self.over
        if function.normalizes and not over:
            over = diagram.structure.legs[self.region][-1:]
        changed = replace(
            diagram.region_by_name[self.region],
            function=function,
            over=over if function.normalizes else (),
            scale=self.scale,
            label=None,
        )
        regions = tuple(
            changed if region.name == self.region else region for region in diagram.regions
        )
        return changed_to(document, replace(diagram, regions=regions))


@dataclass(frozen=True)
class Pin(Edit):
    """Put tensors and convolutions somewhere; they stay there."""

    positions: Mapping[str, Point]

    def apply(self, document: Document) -> Document:
        known = [part.name for part in document.diagram.holders]
        for name in self.positions:
            if name not in known:
                raise DiagramError(f"There is no tensor {name!r} to pin.")
            if not all(abs(value) <= FARTHEST for value in self.positions[name]):
                raise DiagramError(
                    f"A tensor is pinned at most {FARTHEST:,} units away, got "
                    f"{self.positions[name]} for {name!r}."
                )
        points = {name: (round(x, 3), round(y, 3)) for name, (x, y) in self.positions.items()}
        return replace(document, positions={**document.positions, **points})


@dataclass(frozen=True)
class Release(Edit):
    """Let pinned tensors go where the layout puts them; all of them, if none is named."""

    names: tuple[str, ...] = ()

    def apply(self, document: Document) -> Document:
        kept = {
            name: point
            for name, point in document.positions.items()
            if self.names and name not in self.names
        }
        return replace(document, positions=kept)


@dataclass(frozen=True)
class Contract(Edit):
    """Carry out one contraction; what it cost is added up, beside the best order from the start.

    Raises:
        ContractionError: if the tensors are not in one region.
        SizeError: if a size is missing.
    """

    names: tuple[str, ...]

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        for name in self.names:
            node_of(diagram, name)
        result = fresh("P", part_names(diagram))
        merged = contract_nodes(diagram, self.names, result)
        product = merged.node_by_name[result]
        alone = replace(
            diagram,
            nodes=tuple(node for node in diagram.nodes if node.name in self.names),
            convolutions=(),
            regions=(),
            output=tuple(dict.fromkeys(product.indices)),
        )
        best = document.best_before
        if best is None:
            best = plan_contraction(diagram).flops
        changed = changed_to(document, merged)
        spent = document.spent + plan_contraction(alone).flops
        return replace(changed, spent=spent, best_before=best)


# --- One tensor written as several: as two matrices, as CP, as Tucker, as a train -----------------


class Form(StrEnum):
    """How a tensor is written."""

    SVD = "svd"
    CP = "cp"
    TUCKER = "tucker"
    TRAIN = "train"


@dataclass(frozen=True)
class Factor(Edit):
    """Replace a tensor by its factors, all of whose bonds get one rank.

    The value changes: what was any tensor is then one of that rank. The bonds are wires with sizes,
    so their ranks are set like every other size.

    Args:
        tensor: with at least two legs, all different.
        form: of the factors.
        rank: of every bond.
        left: for `svd`, the legs of the first factor; the first half of all, by default.

    Raises:
        DiagramError: if the tensor has too few legs, or one twice, or `left` is no part of them.
        SizeError: if the rank is not a positive integer.
    """

    tensor: str
    form: Form
    rank: int
    left: tuple[str, ...] = ()

    def apply(self, document: Document) -> Document:
        diagram = document.diagram
        node = node_of(diagram, self.tensor)
        check_size("a bond", self.rank)
        legs = node.indices
        if len(legs) < 2 or len(set(legs)) < len(legs):
            raise DiagramError(
                f"Tensor {node.name!r} has the legs {', '.join(legs) or 'none'}; only one with at "
                "least two different legs can be factored."
            )
        bonds, factors = self._factors(diagram, node)
        place = diagram.nodes.index(node)
        names = tuple(factor.name for factor in factors)
        regions = tuple(
            replace(
                region,
                members=tuple(
                    name
                    for member in region.members
                    for name in (names if member == node.name else (member,))
                ),
            )
            for region in diagram.regions
        )
        factored = replace(
            diagram,
            indices=(*diagram.indices, *bonds),
            nodes=(*diagram.nodes[:place], *factors, *diagram.nodes[place + 1 :]),
            regions=regions,
        )
        return changed_to(document, factored)

    def _factors(self, diagram: Diagram, node: Node) -> tuple[tuple[Index, ...], tuple[Node, ...]]:
        legs = node.indices
        last = len(legs) - 1
        core: tuple[Node, ...] = ()
        match self.form:
            case Form.SVD:
                left = self.left or legs[: (len(legs) + 1) // 2]
                right = tuple(leg for leg in legs if leg not in left)
                if not right or not set(left) <= set(legs):
                    raise DiagramError(
                        f"The legs {', '.join(left)} must be some of {', '.join(legs)}, not all."
                    )
                bonds = self._bonds(diagram, 1)
                held = [(*left, bonds[0].name), (bonds[0].name, *right)]
            case Form.CP:
                bonds = self._bonds(diagram, 1)
                held = [(leg, bonds[0].name) for leg in legs]
            case Form.TUCKER:
                bonds = self._bonds(diagram, len(legs))
                held = [(leg, bond.name) for leg, bond in zip(legs, bonds, strict=True)]
                inner = tuple(bond.name for bond in bonds)
                core = (Node(f"{node.name}c", inner, Role.CORE),)
            case Form.TRAIN:
                bonds = self._bonds(diagram, last)
                names = [bond.name for bond in bonds]
                held = [
                    (*names[max(0, place - 1) : place], leg, *names[place : place + 1])
                    for place, leg in enumerate(legs)
                ]
        factors = tuple(
            Node(name, indices)
            for name, indices in zip(self._names(diagram, node, len(held)), held, strict=True)
        )
        return bonds, (*factors, *core)

    def _bonds(self, diagram: Diagram, count: int) -> tuple[Index, ...]:
        names: list[str] = []
        for _ in range(count):
            names.append(fresh("r", (*diagram.index_by_name, *names)))
        return tuple(
            Index(name, self.rank, kind=IndexKind.RANK, label=f"R_{{{name[1:]}}}") for name in names
        )

    def _names(self, diagram: Diagram, node: Node, count: int) -> list[str]:
        stem = node.name.rstrip("0123456789")
        taken = [name for name in part_names(diagram) if name != node.name]
        names: list[str] = []
        for _ in range(count):
            names.append(fresh(stem, (*taken, *names)))
        return names
