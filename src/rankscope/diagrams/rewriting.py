"""Rewriting a diagram without changing its value: merge tensors, finish barriers.

One contraction turns a diagram into a smaller one. Doing all of them, region by region, is how
a diagram is computed; showing every diagram on the way is a storyboard.
"""

from collections.abc import Mapping
from dataclasses import replace

from rankscope.diagrams.diagram import Diagram, scale_symbols
from rankscope.diagrams.parts import Convolution, Index, Node, Region, Role
from rankscope.errors import ContractionError


def contract_nodes(
    diagram: Diagram, names: tuple[str, ...], result: str, *, label: str | None = None
) -> Diagram:
    """Merge nodes of one region into a single node; the value of the diagram stays.

    The new node keeps every index that something else still needs; all others are summed.
    Convolutions whose input and kernel legs both end on the merged nodes are carried out.

    Args:
        diagram: where the nodes are.
        names: one or more nodes that are direct members of the same region.
        result: name of the new node.
        label: its TeX without dollars.

    Example:
        >>> product = Diagram(
        ...     "product",
        ...     (Index("i", 2), Index("j", 3), Index("k", 4)),
        ...     (Node("A", ("i", "j")), Node("B", ("j", "k"))),
        ...     output=("i", "k"),
        ... )
        >>> contract_nodes(product, ("A", "B"), "AB").nodes[0].indices
        ('i', 'k')

    Raises:
        ContractionError: if a name is unknown, repeated or a barrier, or if two of them are on
            different sides of a barrier.
        DiagramError: if `result` is the name of something that stays.
    """
    region = _common_region(diagram, names)
    fired, held = _carry_out(diagram, names, region)
    needed = _needed_elsewhere(diagram, {*names, *fired})
    merged = Node(
        result, tuple(index for index in held if index in needed), Role.RESULT, label=label
    )
    renamed = dict.fromkeys((*names, *fired), "") | {names[0]: result}
    return _assemble(
        diagram,
        nodes=tuple(
            merged if node.name == names[0] else node
            for node in diagram.nodes
            if renamed.get(node.name) != ""
        ),
        convolutions=tuple(part for part in diagram.convolutions if part.name not in fired),
        regions=tuple(_with_members(region, renamed) for region in diagram.regions),
    )


def collapse_region(
    diagram: Diagram, region: str, result: str, *, label: str | None = None
) -> Diagram:
    """Replace a finished barrier by a single node that holds its value.

    Raises:
        ContractionError: if the region is unknown, or still holds more than one tensor with
            exactly the legs that leave it.
        DiagramError: if `result` is the name of something that stays.
    """
    if region not in diagram.region_by_name:
        known = ", ".join(diagram.region_by_name) or "none"
        raise ContractionError(
            f"Diagram {diagram.name!r} has no region {region!r}; it has: {known}."
        )
    members = diagram.structure.members[region]
    node = diagram.node_by_name.get(members[0])
    if len(members) > 1 or node is None:
        raise ContractionError(
            f"Region {region!r} is not finished: it must hold one tensor, but holds "
            f"{len(members)}: {', '.join(members)}. Contract them first."
        )
    legs = diagram.structure.legs[region]
    if sorted(node.indices) != sorted(legs):
        raise ContractionError(
            f"Region {region!r} is not finished: {node.name!r} has the indices {node.indices}, "
            f"but {legs} leave the region. Contract {node.name!r} by itself first."
        )
    value = Node(result, node.indices, Role.RESULT, label=label)
    renamed = {region: result}
    return _assemble(
        diagram,
        nodes=tuple(value if other.name == node.name else other for other in diagram.nodes),
        convolutions=diagram.convolutions,
        regions=tuple(
            _with_members(other, renamed) for other in diagram.regions if other.name != region
        ),
    )


def _common_region(diagram: Diagram, names: tuple[str, ...]) -> str | None:
    if not names or len(dict.fromkeys(names)) < len(names):
        raise ContractionError(
            f"contract_nodes needs one or more different nodes of {diagram.name!r}, got {names}."
        )
    parent = diagram.structure.parent
    for name in names:
        if name in diagram.region_by_name:
            raise ContractionError(
                f"{name!r} is a barrier ({diagram.region_by_name[name].function.name}): finish it "
                "with collapse_region before contracting it."
            )
        if name not in diagram.node_by_name:
            known = ", ".join(diagram.node_by_name) or "none"
            raise ContractionError(
                f"Diagram {diagram.name!r} has no node {name!r}; it has: {known}."
            )
        if parent[name] != parent[names[0]]:
            raise ContractionError(
                f"{names[0]!r} is in {_place(parent[names[0]])} and {name!r} in "
                f"{_place(parent[name])}: a contraction cannot cross a barrier. "
                "Finish the inner region first."
            )
    return parent[names[0]]


def _place(region: str | None) -> str:
    return "the outermost region" if region is None else f"region {region!r}"


def _carry_out(
    diagram: Diagram, names: tuple[str, ...], region: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Convolutions that become possible, and the indices held once they are done."""
    held = dict.fromkeys(index for name in names for index in diagram.node_by_name[name].indices)
    waiting = [diagram.convolution_by_name[c] for c in diagram.structure.convolutions[region]]
    fired: list[str] = []
    # A chain of convolutions may fire one after the other: the output of one is the next's input.
    while (ready := _first_ready(waiting, held)) is not None:
        held = {index: None for index in held if index not in (ready.input, ready.kernel)} | {
            ready.output: None
        }
        waiting.remove(ready)
        fired.append(ready.name)
    return tuple(fired), tuple(held)


def _first_ready(waiting: list[Convolution], held: Mapping[str, None]) -> Convolution | None:
    return next((part for part in waiting if part.input in held and part.kernel in held), None)


def _needed_elsewhere(diagram: Diagram, gone: set[str]) -> set[str]:
    needed = set(diagram.output)
    for part in diagram.holders:
        if part.name not in gone:
            needed.update(part.indices)
    return needed


def _with_members(region: Region, renamed: Mapping[str, str]) -> Region:
    """Members under their new names; the empty name means gone."""
    members = (renamed.get(member, member) for member in region.members)
    return replace(region, members=tuple(member for member in members if member))


def _assemble(
    diagram: Diagram,
    *,
    nodes: tuple[Node, ...],
    convolutions: tuple[Convolution, ...],
    regions: tuple[Region, ...],
) -> Diagram:
    holders: tuple[Node | Convolution, ...] = (*nodes, *convolutions)
    used = {index for part in holders for index in part.indices}
    kept = [index for index in diagram.indices if index.name in used]
    kept += _for_scales([i for i in diagram.indices if i.name not in used], kept, regions)
    order = {index.name: position for position, index in enumerate(diagram.indices)}
    return replace(
        diagram,
        indices=tuple(sorted(kept, key=lambda index: order[index.name])),
        nodes=nodes,
        convolutions=convolutions,
        regions=regions,
    )


def _for_scales(
    dropped: list[Index], kept: list[Index], regions: tuple[Region, ...]
) -> list[Index]:
    """Indices that are on no tensor any more, but whose size a barrier's scale still uses."""
    needed: list[Index] = []
    for region in regions:
        for symbol in scale_symbols(region.scale) if region.scale else ():
            if not any(_stands_for(index, symbol) for index in (*kept, *needed)):
                needed.append(next(index for index in dropped if _stands_for(index, symbol)))
    return needed


def _stands_for(index: Index, symbol: str) -> bool:
    return symbol in (index.symbol, index.name)
