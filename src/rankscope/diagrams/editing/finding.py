"""Parts of an edited diagram by name, and what follows when some of them are gone."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Convolution, Function, Index, Node, Region
from rankscope.errors import DiagramError

NAME = re.compile(r"[^\W\d]\w{0,23}")


def part_names(diagram: Diagram) -> list[str]:
    """Names of tensors, convolutions and barriers."""
    return [part.name for part in (*diagram.holders, *diagram.regions)]


def require_part(diagram: Diagram, name: str) -> None:
    """Refuse a name that no tensor, convolution or barrier has."""
    names = part_names(diagram)
    if name not in names:
        known = ", ".join(names) or "none"
        raise DiagramError(f"There is no tensor or barrier {name!r}; there are: {known}.")


def require_name(name: str, what: str) -> None:
    """Refuse a name that cannot stand in code."""
    if not NAME.fullmatch(name):
        raise DiagramError(
            f"The name of a {what} begins with a letter and has letters, digits and _ only, at "
            f"most 24 of them; got {name[:40]!r}."
        )


def node_of(diagram: Diagram, name: str) -> Node:
    """The tensor of that name, or a refusal that lists them."""
    if name not in diagram.node_by_name:
        known = ", ".join(diagram.node_by_name) or "none"
        raise DiagramError(f"There is no tensor {name!r}; there are: {known}.")
    return diagram.node_by_name[name]


def index_of(diagram: Diagram, name: str) -> Index:
    """The wire of that name, or a refusal that lists them."""
    if name not in diagram.index_by_name:
        known = ", ".join(diagram.index_by_name) or "none"
        raise DiagramError(f"There is no wire {name!r}; there are: {known}.")
    return diagram.index_by_name[name]


def with_node(diagram: Diagram, changed: Node) -> tuple[Node, ...]:
    """All tensors, one of them changed."""
    return tuple(changed if node.name == changed.name else node for node in diagram.nodes)


def with_index(diagram: Diagram, changed: Index) -> tuple[Index, ...]:
    """All wires, one of them changed."""
    return tuple(changed if index.name == changed.name else index for index in diagram.indices)


def fresh(letter: str, taken: Iterable[str]) -> str:
    """The letter with the first number that is free."""
    names = set(taken)
    number = 1
    while f"{letter}{number}" in names:
        number += 1
    return f"{letter}{number}"


def fresh_leg(diagram: Diagram) -> str:
    """A letter that no wire has."""
    for letter in "ijklmnpqstuvwxyzabcdefgh":
        if letter not in diagram.index_by_name:
            return letter
    return fresh("i", diagram.index_by_name)


def with_wire(diagram: Diagram, old: str, new: str) -> Diagram:
    """One wire under another name; if that exists already, the two become one."""

    def renamed(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    exists = new in diagram.index_by_name
    size = next((i.size for i in diagram.indices if i.name in (old, new) and i.size), None)
    indices = tuple(
        replace(index, name=new if index.name == old else index.name, size=index.size or size)
        if index.name in (old, new)
        else index
        for index in diagram.indices
        if not (exists and index.name == old)
    )
    return replace(
        diagram,
        indices=indices,
        nodes=tuple(
            replace(
                node,
                indices=renamed(node.indices),
                narrow_side=new if node.narrow_side == old else node.narrow_side,
            )
            for node in diagram.nodes
        ),
        convolutions=tuple(
            replace(
                part,
                input=renamed((part.input,))[0],
                kernel=renamed((part.kernel,))[0],
                output=renamed((part.output,))[0],
            )
            for part in diagram.convolutions
        ),
        regions=tuple(
            replace(
                region,
                over=tuple(dict.fromkeys(renamed(region.over))),
                causal=None
                if region.causal is None
                else (renamed(region.causal)[0], renamed(region.causal)[1]),
            )
            for region in diagram.regions
        ),
        output=tuple(dict.fromkeys(renamed(diagram.output))),
    )


def without(regions: tuple[Region, ...], gone: set[str]) -> tuple[Region, ...]:
    """Regions that stay; members of one that goes belong to the region around it."""
    inside = {region.name: region.members for region in regions if region.name in gone}

    def opened(members: Iterable[str]) -> tuple[str, ...]:
        found: list[str] = []
        for member in members:
            found.extend(opened(inside[member]) if member in inside else (member,))
        return tuple(found)

    return tuple(
        replace(region, members=opened(region.members))
        for region in regions
        if region.name not in gone
    )


def living(regions: tuple[Region, ...], kept: set[str]) -> tuple[Region, ...]:
    """Regions that still hold something, without the members that are gone."""
    names = {region.name for region in regions}
    while True:
        living = tuple(
            replace(region, members=tuple(m for m in region.members if m in kept | names))
            for region in regions
            if region.name in names
        )
        left = {region.name for region in living if region.members}
        if left == names:
            return living
        names = left


def tidied(
    diagram: Diagram,
    nodes: Sequence[Node],
    convolutions: Sequence[Convolution],
    regions: tuple[Region, ...],
    before: Diagram | None = None,
) -> Diagram:
    """Wires that lost an end come open, those without any go; so do barriers without their legs."""
    start = before or diagram
    old = start.structure.owners
    bare = replace(
        diagram,
        nodes=tuple(nodes),
        convolutions=tuple(convolutions),
        regions=(),
        output=(),
    )
    owners = bare.structure.owners
    loose = [
        leg
        for leg, held in owners.items()
        if len(held) == 1 and len(old.get(leg, ())) > 1 and leg not in diagram.output
    ]
    output = (*(leg for leg in diagram.output if leg in owners), *loose)
    indices = tuple(index for index in diagram.indices if index.name in owners)
    whole = replace(bare, indices=indices, output=output)
    while regions:
        plain = tuple(
            replace(region, function=Function("identity"), over=(), scale=None, causal=None)
            for region in regions
        )
        legs = replace(whole, regions=plain).structure.legs
        fitting = {region.name: _fitted(region, legs[region.name]) for region in regions}
        lost = {name for name, region in fitting.items() if region is None}
        if not lost:
            return replace(whole, regions=tuple(r for r in fitting.values() if r is not None))
        regions = without(regions, lost)
    return whole


def _fitted(region: Region, leaving: tuple[str, ...]) -> Region | None:
    """The region with the legs that still leave it; None if its function has nothing left."""
    over = tuple(leg for leg in region.over if leg in leaving)
    if region.function.normalizes and not over:
        return None
    causal = region.causal if region.causal and set(region.causal) <= set(leaving) else None
    return replace(region, over=over, causal=causal)
