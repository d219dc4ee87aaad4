"""Edits of barriers and places, and contractions that are carried out by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rankscope.diagrams.contraction import plan_contraction
from rankscope.diagrams.editing.document import Document, Edit, Point, changed_to
from rankscope.diagrams.editing.finding import fresh, node_of, part_names, require_part
from rankscope.diagrams.parts import Function, Region
from rankscope.diagrams.rewriting import contract_nodes
from rankscope.errors import DiagramError

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
