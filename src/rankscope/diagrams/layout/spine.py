"""The spine of a stage: its longest chain of tensors, which becomes a straight row."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.wires import Wiring
from rankscope.diagrams.parts import IndexKind

HYPEREDGE_WEIGHT = 0.9  # a chain through plain contractions is worth more
EXHAUSTIVE_LIMIT = 12
MAX_STEPS = 20_000


@dataclass(frozen=True)
class Link:
    """Two tensors that may be neighbours on a spine, and the index between them."""

    index: str
    weight: float


Links = dict[str, dict[str, Link]]


def links_among(wiring: Wiring, names: Sequence[str]) -> Links:
    """For each tensor the tensors it shares an index with, in the order of `names`."""
    diagram = wiring.diagram
    rank = {name: place for place, name in enumerate(names)}
    found: Links = {name: {} for name in names}
    for index, owners in _shared(diagram, rank):
        here = [name for name in dict.fromkeys(owners) if name in rank]
        is_plain = len(owners) == 2 and index not in diagram.output
        link = Link(index, 1.0 if is_plain else HYPEREDGE_WEIGHT)
        for first in here:
            for second in here:
                if first != second:
                    known = found[first].get(second)
                    if known is None or known.weight < link.weight:
                        found[first][second] = link
    return {
        name: dict(sorted(others.items(), key=lambda item: rank[item[0]]))
        for name, others in found.items()
    }


def _shared(diagram: Diagram, names: Mapping[str, int]) -> list[tuple[str, tuple[str, ...]]]:
    """Indices on at least two of the tensors; an open batch index only if there is no other.

    A batch index is on all data: a chain that runs through it would tear the rest apart.
    """
    shared = [
        (index, owners)
        for index, owners in diagram.structure.owners.items()
        if len({name for name in owners if name in names}) > 1
    ]
    others = [
        (index, owners)
        for index, owners in shared
        if diagram.index_by_name[index].kind is not IndexKind.BATCH or index not in diagram.output
    ]
    return others or shared


def components(links: Links) -> list[list[str]]:
    """Groups of tensors that hang together, each in order of declaration."""
    seen: dict[str, int] = {}
    for start in links:
        if start in seen:
            continue
        group, waiting = len(seen), deque([start])
        seen[start] = group
        while waiting:
            for name in links[waiting.popleft()]:
                if name not in seen:
                    seen[name] = group
                    waiting.append(name)
    groups: dict[int, list[str]] = {}
    for name in links:
        groups.setdefault(seen[name], []).append(name)
    return list(groups.values())


def longest_path(wiring: Wiring, names: Sequence[str], links: Links) -> list[str]:
    """The heaviest simple path that uses no index twice.

    Between equals: ends with open legs, then the path that was declared first. Up to 12
    tensors the search is exhaustive (with a limit on steps); beyond, the two farthest tensors
    are joined, which is exact on trees.
    """
    if not names:
        return []
    if len(names) > EXHAUSTIVE_LIMIT:
        return _farthest(names, links)
    return _Search(wiring, names, links).run()


class _Search:
    """Depth first in order of declaration, so that the first of equals is found first."""

    def __init__(self, wiring: Wiring, names: Sequence[str], links: Links) -> None:
        diagram = wiring.diagram
        self.names, self.links = names, links
        self.is_open = {
            name: any(
                index in diagram.output
                for index in getattr(diagram.node_by_name.get(name), "indices", ())
            )
            for name in names
        }
        self.best: list[str] = []
        self.value = (-1.0, -1)
        self.steps = 0

    def run(self) -> list[str]:
        for start in self.names:
            self._extend([start], (), 0.0)
        return self.best

    def _extend(self, path: list[str], used: tuple[str, ...], weight: float) -> None:
        self.steps += 1
        num_open_ends = int(self.is_open[path[0]]) + int(self.is_open[path[-1]])
        value = (round(weight, 3), num_open_ends)
        if value > self.value:
            self.best, self.value = list(path), value
        most = round(weight + len(self.names) - len(path), 3)
        if (most, 2) <= self.value or self.steps > MAX_STEPS:
            return
        for name, link in self.links[path[-1]].items():
            if name not in path and link.index not in used:
                self._extend([*path, name], (*used, link.index), weight + link.weight)


def _farthest(names: Sequence[str], links: Links) -> list[str]:
    end = _path_to_farthest(names[0], links)[-1]
    path = _path_to_farthest(end, links)
    return path if names.index(path[0]) < names.index(path[-1]) else path[::-1]


def _path_to_farthest(start: str, links: Links) -> list[str]:
    previous: dict[str, str | None] = {start: None}
    waiting = deque([start])
    while waiting:
        name = waiting.popleft()
        for other in links[name]:
            if other not in previous:
                previous[other] = name
                waiting.append(other)
    # Breadth first, so the name found last is farthest.
    path: list[str] = []
    step: str | None = next(reversed(previous))
    while step is not None:
        path.append(step)
        step = previous[step]
    return path[::-1]
