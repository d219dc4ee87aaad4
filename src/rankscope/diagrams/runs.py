"""Runs of alike tensors in a chain, such as the middle of a tensor train, drawn as one."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Node

SHORTEST = 4  # tensors that are worth it
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Run:
    """Tensors that follow each other in a chain, and the name of the one that stands for them."""

    names: tuple[str, ...]
    shown: str


def collapse_runs(diagram: Diagram) -> tuple[Diagram, tuple[Run, ...]]:
    """A diagram for the eye, in which every run of alike tensors is one; not one to compute with.

    Tensors are alike if they differ in numbers only: in their names, and in the names of their
    legs. Inside a run each is joined to the one before and the one after it, and to nothing else.
    The one that stands for them keeps the outer bonds and the open legs of the first.

    Example:
        >>> from rankscope.diagrams.families.catalogue import family
        >>> shorter, runs = collapse_runs(family("tensor-train", order=12, size=4, rank=3))
        >>> len(shorter.nodes), runs[0].names[0], runs[0].names[-1], len(runs[0].names)
        (3, 'G2', 'G11', 10)
    """
    found: list[Run] = []
    for names in _chains(diagram):
        shown = f"{names[0]} to {names[-1]}"
        diagram = _merged(diagram, names, shown)
        found.append(Run(names, shown))
    return diagram, tuple(found)


def _chains(diagram: Diagram) -> Iterator[tuple[str, ...]]:
    """Maximal runs, in order of declaration."""
    neighbours = _neighbours(diagram)
    kinds = {node.name: _kind(diagram, node) for node in diagram.nodes}
    convolved = {index for part in diagram.convolutions for index in part.indices}
    inner = [
        node.name
        for node in diagram.nodes
        if diagram.structure.parent[node.name] is None
        and len(neighbours[node.name]) == 2
        and not convolved & set(node.indices)
    ]
    left = dict.fromkeys(inner)
    while left:
        name = next(iter(left))
        run = [name]
        del left[name]
        for at_end in (True, False):
            while True:
                end = run[-1] if at_end else run[0]
                more = [n for n in neighbours[end] if n in left and kinds[n] == kinds[end]]
                if not more:
                    break
                del left[more[0]]
                run.insert(len(run) if at_end else 0, more[0])
        if len(run) >= SHORTEST and not set(neighbours[run[0]]) <= set(run):
            order = {node.name: place for place, node in enumerate(diagram.nodes)}
            yield tuple(run if order[run[0]] < order[run[-1]] else run[::-1])


def _neighbours(diagram: Diagram) -> dict[str, list[str]]:
    """Tensors that share a wire, and everything else that a wire runs to."""
    found: dict[str, list[str]] = {}
    for node in diagram.nodes:
        others = [
            name
            for index in node.indices
            for name in diagram.structure.owners[index]
            if name != node.name
        ]
        found[node.name] = list(dict.fromkeys(others))
    return found


def _kind(diagram: Diagram, node: Node) -> tuple[object, ...]:
    sizes = diagram.sizes
    legs = tuple((_NUMBER.sub("", index), sizes[index]) for index in node.indices)
    return (_NUMBER.sub("", node.name), node.role, tuple(sorted(legs, key=str)))


def _merged(diagram: Diagram, names: tuple[str, ...], shown: str) -> Diagram:
    first, last = diagram.node_by_name[names[0]], diagram.node_by_name[names[-1]]
    inside = set(names)
    owners = diagram.structure.owners
    outer = [index for index in last.indices if any(owner not in inside for owner in owners[index])]
    own = [
        index
        for index in first.indices
        if len(set(owners[index])) == 1 or any(owner not in inside for owner in owners[index])
    ]
    stem = _NUMBER.sub("", names[0])
    numbers = [_NUMBER.findall(name)[-1:] or [""] for name in (names[0], names[-1])]
    label = rf"\mathbf{{{stem}}}_{{{numbers[0][0]}}}\cdots\mathbf{{{stem}}}_{{{numbers[1][0]}}}"
    node = replace(
        first,
        name=shown,
        indices=tuple(dict.fromkeys((*own, *outer))),
        label=label if stem.isalpha() else None,
        array=None,
        rows=None,
        narrow_side=None,
    )
    nodes = tuple(
        node if each.name == names[0] else each
        for each in diagram.nodes
        if each.name == names[0] or each.name not in inside
    )
    convolved = {index for part in diagram.convolutions for index in part.indices}
    used = convolved | {index for each in nodes for index in each.indices}
    return replace(
        diagram,
        nodes=nodes,
        indices=tuple(index for index in diagram.indices if index.name in used),
        output=tuple(index for index in diagram.output if index in used),
    )
