"""Diagrams that fall apart: each part is placed on its own, then they stand side by side."""

from dataclasses import replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.placement import Placement, View
from rankscope.diagrams.layout.render import render
from rankscope.diagrams.layout.tensors import UNIT
from rankscope.diagrams.parts import Convolution, Node

MAX_LEGS_ON_ROW = 2
BETWEEN = 44.0


def separated(diagram: Diagram) -> list[Diagram]:
    """The connected parts, in order of declaration; small lone tensors share one part."""
    group = _groups(diagram)
    parts: dict[str, list[str]] = {}
    for holder in diagram.holders:
        parts.setdefault(group[holder.name], []).append(holder.name)
    lone = [names for names in parts.values() if _is_lone(diagram, names)]
    others = [names for names in parts.values() if not _is_lone(diagram, names)]
    merged = [*others, *([[name for names in lone for name in names]] if lone else [])]
    order = {holder.name: place for place, holder in enumerate(diagram.holders)}
    merged.sort(key=lambda names: order[names[0]])
    return [_restricted(diagram, names) for names in merged]


def _groups(diagram: Diagram) -> dict[str, str]:
    """For every node and convolution a representative of its part."""
    leader = {part.name: part.name for part in diagram.holders}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    def join(names: tuple[str, ...]) -> None:
        for name in names[1:]:
            leader[find(name)] = find(names[0])

    for owners in diagram.structure.owners.values():
        join(owners)
    for region in diagram.region_by_name:
        structure = diagram.structure
        join((*structure.nodes_inside[region], *structure.convolutions_inside[region]))
    return {name: find(name) for name in leader}


def _is_lone(diagram: Diagram, names: list[str]) -> bool:
    node = diagram.node_by_name.get(names[0])
    if len(names) > 1 or node is None or diagram.structure.parent[names[0]] is not None:
        return False
    return len(node.indices) <= MAX_LEGS_ON_ROW


def _restricted(diagram: Diagram, names: list[str]) -> Diagram:
    nodes = tuple(node for node in diagram.nodes if node.name in names)
    convolutions = tuple(part for part in diagram.convolutions if part.name in names)
    parts: tuple[Node | Convolution, ...] = (*nodes, *convolutions)
    held = {index for part in parts for index in part.indices}
    structure = diagram.structure
    return replace(
        diagram,
        nodes=nodes,
        convolutions=convolutions,
        regions=tuple(
            region
            for region in diagram.regions
            if any(
                name in names
                for name in (
                    *structure.nodes_inside[region.name],
                    *structure.convolutions_inside[region.name],
                )
            )
        ),
        output=tuple(index for index in diagram.output if index in held),
    )


def side_by_side(parts: list[tuple[Diagram, Placement]], view: View) -> Placement:
    """All parts on one line, with room between their pictures."""
    if len(parts) == 1:
        return parts[0][1]
    moved: list[Placement] = []
    right = 0.0
    for diagram, placement in parts:
        left_edge, _, right_edge, _ = render(diagram, placement, replace(view, cut=())).box
        shift = right - left_edge if moved else 0.0
        moved.append(placement.shifted(shift / UNIT, 0.0))
        right = right_edge + shift + BETWEEN
    return Placement(
        {name: point for one in moved for name, point in one.nodes.items()},
        {key: point for one in moved for key, point in one.dots.items()},
        {name: point for one in moved for name, point in one.tips.items()},
        straight=tuple(index for one in moved for index in one.straight),
    )
