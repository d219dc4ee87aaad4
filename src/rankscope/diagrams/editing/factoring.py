"""Edits that write one tensor as several: as two matrices, as CP, as Tucker, as a train.

The value changes: what was any tensor is then one of that rank. The bonds are wires with sizes,
so their ranks are set like every other size.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from rankscope.diagrams.diagram import Diagram, check_size
from rankscope.diagrams.editing.document import Document, Edit, changed_to
from rankscope.diagrams.editing.finding import fresh, node_of, part_names
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import DiagramError


class Form(StrEnum):
    """How a tensor is written."""

    SVD = "svd"
    CP = "cp"
    TUCKER = "tucker"
    TRAIN = "train"


@dataclass(frozen=True)
class Factor(Edit):
    """Replace a tensor by its factors, all of whose bonds get one rank.

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
