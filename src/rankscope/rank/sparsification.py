"""Fewer edges: removed by walk index, at random, or by effective resistance.

The walk index of one vertex against all others, read at that vertex, is the number of closed walks
there, of as many steps as the network has layers. Removing by walk index takes away, one after the
other, the edge after which these numbers, sorted, are the largest in lexicographic order. With one
layer less (closed walks of two steps) they are degrees, and an edge is chosen by the degrees of its
ends alone, which takes a second for a hundred thousand edges.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from rankscope.budget import Deadline
from rankscope.errors import BudgetError, SizeError
from rankscope.progress import Progress, Report, ignore
from rankscope.rank.graphs import Edge, Graph, effective_resistances, from_networkx
from rankscope.rank.residues import compiled

if TYPE_CHECKING:
    import networkx

Integers = NDArray[numpy.int64]

MAX_SECONDS = 600.0
# Measured by `python -m benchmarks sparsify`: a vertex that a walk leaves, an edge that is looked
# at again, and one that is compared.
_SECONDS_EACH_STEP = 2e-8
_SECONDS_EACH_EDGE = 2e-6
_SECONDS_EACH_COMPARISON = 2e-8
_MOST_NUMBERS = 2**27  # a gibibyte
_SAMPLED = 50  # edges whose cost stands for that of all


class Rule(StrEnum):
    """How edges are chosen: by closed walks, by degrees, at random, by effective resistance."""

    WALK = "walk"
    ONE_WALK = "one-walk"
    RANDOM = "random"
    SPECTRAL = "spectral"


@dataclass(frozen=True)
class Sparsified:
    """A graph with fewer edges.

    Args:
        rule: by which they were chosen.
        depth: layers of the network that it is for.
        graph: with the edges that were kept.
        removed: the others, in the order of their removal.
    """

    rule: Rule
    depth: int
    graph: Graph
    removed: tuple[Edge, ...]

    @cached_property
    def closed_walks(self) -> Integers:
        """The walk index of every vertex against all others."""
        return closed_walks(self.graph, self.depth)

    def to_dict(self) -> dict[str, object]:
        """What is left, as plain data for JSON."""
        import networkx

        plain = networkx.Graph(self.graph.edges)
        isolated = sum(degree == 0 for degree in self.graph.degrees)
        walks = self.closed_walks
        return {
            "rule": str(self.rule),
            "kept": len(self.graph.edges),
            "removed": len(self.removed),
            "components": networkx.number_connected_components(plain) + isolated,
            "isolated": isolated,
            "least_walk_index": int(walks.min()),
            "median_walk_index": float(numpy.median(walks)),
            "mean_walk_index": float(walks.mean()),
        }


def sparsify(  # noqa: PLR0913 - choices of one call, all by name
    graph: Graph,
    keep: float,
    *,
    depth: int = 2,
    rule: Rule | str = Rule.WALK,
    seed: int = 0,
    max_seconds: float | None = MAX_SECONDS,
    report: Report = ignore,
) -> Sparsified:
    """Remove edges until a share of them is left.

    Args:
        graph: which is not changed.
        keep: the share of edges that is kept, 0 to 1, rounded to whole edges.
        depth: layers of the network; `walk` counts closed walks of so many steps.
        rule: see `Rule`.
        seed: of the rules that draw at random.
        max_seconds: that `walk` may take, by an estimate; None for any time.
        report: called with the progress.

    Example:
        >>> square = Graph(4, ((0, 1), (1, 2), (2, 3), (0, 3), (0, 2)))
        >>> sparsify(square, 0.8, rule="one-walk").removed
        ((0, 2),)

    Raises:
        SizeError: if the share or the depth is out of range, or there is no such rule.
        BudgetError: if it would take too long, or walks are too many for 64 bits.

    Reference:
        Razin, Verbin & Cohen (2022), Algorithms 1 and 2, arXiv:2211.16494, for `walk` and
        `one-walk`; Spielman & Srivastava (2011), doi:10.1137/080734029, for `spectral`, here with
        edges drawn once each and without weights.
    """
    if not 0 <= keep <= 1:
        raise SizeError(f"sparsify: keep must be a share from 0 to 1, got {keep}.")
    if depth < 2:
        raise SizeError(f"sparsify: depth must be at least 2, got {depth}.")
    if rule not in list(Rule):
        raise SizeError(f"sparsify: rule must be one of {', '.join(Rule)}, got {rule!r}.")
    rule = Rule(rule)
    count = len(graph.edges) - round(keep * len(graph.edges))
    if rule is Rule.ONE_WALK or (rule is Rule.WALK and depth == 2):
        order = _by_degrees(graph, count)
    elif rule is Rule.WALK:
        order = _by_closed_walks(graph, count, depth, Deadline(max_seconds), report)
    else:
        order = _drawn(graph, count, rule, seed)
    removed = tuple(graph.edges[place] for place in order)
    gone = set(removed)
    kept = Graph(graph.num_vertices, tuple(edge for edge in graph.edges if edge not in gone))
    return Sparsified(rule, depth, kept, removed)


def sparsify_networkx(
    graph: "networkx.Graph[Any]", keep: float, **options: Any
) -> "networkx.Graph[Any]":
    """A copy of an undirected networkx graph with fewer edges; attributes and loops stay.

    Args:
        graph: which is not changed.
        keep: see `sparsify`, also for the options.
        options: `depth`, `rule`, `seed`, `max_seconds`, `report`.

    Example:
        >>> import networkx
        >>> sparsify_networkx(networkx.karate_club_graph(), 0.5, depth=3).number_of_edges()
        39

    Raises:
        DataError: if it has directions or several edges between two nodes.
    """
    numbered, nodes = from_networkx(graph)
    result = graph.copy()
    removed = sparsify(numbered, keep, **options).removed
    result.remove_edges_from([(nodes[first], nodes[second]) for first, second in removed])
    return result


# --- By degrees -----------------------------------------------------------------------------------


def _by_degrees(graph: Graph, count: int) -> list[int]:
    """Places of edges: always the one whose smaller degree, then larger one, is the largest."""
    ranked = _RankedEdges(graph)
    return [ranked.take() for _ in range(count)]


class _RankedEdges:
    """Edges by the degrees of their ends, while edges are taken away.

    An edge stands in a group: its end of larger degree, and the smaller degree. All edges of one
    compare alike, so a vertex with many edges costs no more than the different degrees around it.
    Degrees only fall: an old key of a group is never worse than the true one, and is looked at
    again when it is the best.
    """

    def __init__(self, graph: Graph) -> None:
        self.edges = graph.edges
        self.degrees = list(graph.degrees)
        self.low: list[set[int]] = [set() for _ in range(graph.num_vertices)]
        self.group: list[tuple[int, int] | None] = [None] * len(graph.edges)
        self.members: dict[tuple[int, int], list[int]] = {}
        self.waiting: list[tuple[int, int, int, int]] = []
        for place in range(len(graph.edges)):
            self._assign(place)

    def take(self) -> int:
        """Take the best edge away, the first one of several."""
        while True:
            smaller, larger, place, high = self.waiting[0]
            group = (high, -smaller)
            members = self.members.get(group, [])
            while members and self.group[members[0]] != group:
                heapq.heappop(members)
            if not members:
                heapq.heappop(self.waiting)
            elif (-larger, place) != (self.degrees[high], members[0]):
                true = (smaller, -self.degrees[high], members[0], high)
                heapq.heapreplace(self.waiting, true)
            else:
                self._remove(place)
                return place

    def _assign(self, place: int) -> None:
        high, low = sorted(self.edges[place], key=lambda vertex: (-self.degrees[vertex], vertex))
        group = (high, self.degrees[low])
        self.group[place] = group
        self.low[low].add(place)
        members = self.members.setdefault(group, [])
        heapq.heappush(members, place)
        if members[0] == place:
            key = (-group[1], -self.degrees[high], place, high)
            heapq.heappush(self.waiting, key)

    def _remove(self, place: int) -> None:
        self.group[place] = None
        before = {vertex: self.degrees[vertex] for vertex in self.edges[place]}
        for vertex in before:
            self.low[vertex].discard(place)
            self.degrees[vertex] -= 1
        for vertex, degree in before.items():
            # What the vertex was the smaller end of, and what it may have become that of.
            equal = [
                one
                for one in self.members.pop((vertex, degree), [])
                if self.group[one] == (vertex, degree)
            ]
            for one in (*self.low[vertex], *equal):
                for end in self.edges[one]:
                    self.low[end].discard(one)
                self._assign(one)


# --- By closed walks ------------------------------------------------------------------------------


def closed_walks(graph: Graph, length: int) -> Integers:
    """For each vertex the closed walks of a length; none for a vertex without an edge.

    Example:
        >>> closed_walks(Graph(4, ((0, 1), (1, 2))), 2).tolist()
        [2, 3, 2, 0]

    Raises:
        BudgetError: if they may be too many for 64 bits.
    """
    table = _Table(graph, length)
    return table.counts(numpy.arange(graph.num_vertices))


class _Table:
    """The neighbours of all vertices in arrays, from which edges can be taken away."""

    def __init__(self, graph: Graph, length: int) -> None:
        largest = max(graph.degrees, default=0) + 1
        if length * numpy.log2(largest) > 62:
            raise BudgetError(
                f"Walks of {length} steps among vertices with {largest - 1} edges may be too many "
                "for 64 bits; count shorter ones, or remove by degrees (one-walk)."
            )
        self.length = length
        self.starts = numpy.zeros(graph.num_vertices + 1, numpy.int64)
        self.starts[1:] = numpy.cumsum(graph.degrees)
        self.ends = numpy.empty(2 * len(graph.edges), numpy.int64)
        self.adjacent = [set(one) for one in graph.neighbourhoods]
        self.is_there = numpy.ones(2 * len(graph.edges), numpy.bool_)
        self.places = numpy.empty((len(graph.edges), 2), numpy.int64)
        free = self.starts[:-1].copy()
        for number, edge in enumerate(graph.edges):
            for side, (vertex, other) in enumerate((edge, edge[::-1])):
                self.ends[free[vertex]] = other
                self.places[number, side] = free[vertex]
                free[vertex] += 1
        # Rows of `count_closed_walks`, then marks, results and vertices near an edge.
        self.space = numpy.zeros((8, graph.num_vertices), numpy.int64)
        self.steps = 0

    @property
    def arrays(self) -> tuple[Integers, Integers, NDArray[numpy.bool_]]:
        """Where the neighbours of each vertex start, the neighbours, and whether they are there."""
        return self.starts, self.ends, self.is_there

    def counts(self, vertices: Integers) -> Integers:
        """Closed walks at some vertices."""
        results = numpy.empty(len(vertices), numpy.int64)
        self.steps += count_closed_walks(self.arrays, vertices, self.length, self.space, results)
        return results

    def near(self, vertices: Iterable[int], distance: int) -> Integers:
        """Vertices at most so many edges away."""
        found = set(vertices)
        border = found
        for _ in range(distance):
            border = set().union(*(self.adjacent[vertex] for vertex in border)) - found
            found |= border
        return numpy.array(sorted(found), numpy.int64)

    def remove(self, place: int, edge: Edge) -> None:
        """Take an edge away for good."""
        self.is_there[self.places[place]] = False
        self.adjacent[edge[0]].discard(edge[1])
        self.adjacent[edge[1]].discard(edge[0])


@compiled
def spread_walks(
    table: tuple[Integers, Integers, NDArray[numpy.bool_]],
    counts: tuple[Integers, Integers],
    reached: Integers,
    size: int,
) -> int:
    """One step of walks: counts[0] is replaced; gives how many vertices are reached now."""
    starts, ends, is_there = table
    now, then = counts
    new = 0
    for k in range(size):
        vertex = reached[0, k]
        value = now[vertex]
        now[vertex] = 0
        if then[vertex] == 0:
            reached[1, new] = vertex
            new += 1
        then[vertex] += value
        for at in range(starts[vertex], starts[vertex + 1]):
            if is_there[at]:
                other = ends[at]
                if then[other] == 0:
                    reached[1, new] = other
                    new += 1
                then[other] += value
    for k in range(new):
        vertex = reached[1, k]
        reached[0, k] = vertex
        now[vertex] = then[vertex]
        then[vertex] = 0
    return new


@compiled
def count_closed_walks(
    table: tuple[Integers, Integers, NDArray[numpy.bool_]],
    vertices: Integers,
    length: int,
    space: Integers,
    results: Integers,
) -> int:
    """Closed walks at vertices, as products of walks of half the length; gives the steps taken.

    A closed walk is a walk of length // 2 and, backwards, one of the rest. The rows of `space` are
    two of counts and two of reached vertices, then the counts at half the length.
    """
    steps = 0
    counts, reached, half = (space[0], space[1]), space[2:4], space[4]
    for number in range(vertices.size):
        start = vertices[number]
        space[0, start], reached[0, 0], size = 1, start, 1
        for step in range(length - length // 2):
            if step == length // 2:
                for k in range(size):
                    half[reached[0, k]] = space[0, reached[0, k]]
            steps += size
            size = spread_walks(table, counts, reached, size)
        if length % 2 == 0:
            for k in range(size):
                half[reached[0, k]] = space[0, reached[0, k]]
        total = 0
        # Whatever was reached at half the length is reached still: walks may stay.
        for k in range(size):
            total += half[reached[0, k]] * space[0, reached[0, k]]
            half[reached[0, k]] = 0
            space[0, reached[0, k]] = 0
        results[number] = total if size > 1 else 0
    return steps


_FAR = 2**62  # beyond every number of walks


def _by_closed_walks(
    graph: Graph, count: int, depth: int, deadline: Deadline, report: Report
) -> list[int]:
    """Places of edges: always the one whose removal leaves the largest sorted walk indices."""
    table = _Table(graph, depth)
    _require_time(graph, table, count, deadline)
    known = table.counts(numpy.arange(graph.num_vertices))
    ends = numpy.array(graph.edges, numpy.int64).reshape(-1, 2)
    keys = _empty_keys(graph, table)
    of_vertex: list[set[int]] = [set() for _ in range(graph.num_vertices)]
    for place, edge in enumerate(graph.edges):
        for vertex in edge:
            of_vertex[vertex].add(place)
    stale = set(range(len(graph.edges)))
    removed: list[int] = []
    is_left = numpy.ones(len(graph.edges), numpy.bool_)
    while len(removed) < count:
        deadline.require("Removing edges by closed walks")
        chosen = numpy.array(sorted(stale), numpy.int64)
        score_removals(table.arrays, (ends, table.places), chosen, depth, known, table.space, keys)
        best = int(best_key(keys, is_left))
        edge = graph.edges[best]
        # Beyond this distance no closed walk through the edge is also one through the other.
        around = table.near(edge, depth - 1)
        table.remove(best, edge)
        touched = table.near(edge, (depth - 1) // 2)
        known[touched] = table.counts(touched)
        for vertex in edge:
            of_vertex[vertex].discard(best)
        is_left[best] = False
        removed.append(best)
        stale = {place for vertex in around.tolist() for place in of_vertex[vertex]}
        report(Progress("edges removed", len(removed), count))
    return removed


def _empty_keys(graph: Graph, table: _Table) -> Integers:
    """Space for what the removal of each edge changes: two values for each vertex near it."""
    distance = (table.length - 1) // 2
    near = max((len(table.near(edge, distance)) for edge in graph.edges), default=0)
    numbers = len(graph.edges) * (2 * near + 1) * 2
    if numbers > _MOST_NUMBERS:
        raise BudgetError(
            f"Removing edges by closed walks needs {numbers:,} numbers for the {near} vertices "
            f"near an edge, at most {_MOST_NUMBERS:,} fit; use one-walk."
        )
    return numpy.zeros((len(graph.edges), 2 * near + 1, 2), numpy.int64)


@compiled
def near_vertices(
    table: tuple[Integers, Integers, NDArray[numpy.bool_]],
    ends: Integers,
    distance: int,
    marks: Integers,
    found: Integers,
) -> int:
    """Vertices at most so far from the ends of an edge; `marks` is zero before and after."""
    starts, others, is_there = table
    found[0], found[1] = ends[0], ends[1]
    marks[ends[0]] = marks[ends[1]] = 1
    size, done = 2, 0
    for _ in range(distance):
        border = size
        for k in range(done, border):
            for at in range(starts[found[k]], starts[found[k] + 1]):
                if is_there[at] and marks[others[at]] == 0:
                    marks[others[at]] = 1
                    found[size] = others[at]
                    size += 1
        done = border
    for k in range(size):
        marks[found[k]] = 0
    return size


@compiled
def score_removals(  # noqa: C901, PLR0913 - compiled: arrays, and no calls in the inner loops
    table: tuple[Integers, Integers, NDArray[numpy.bool_]],
    edges: tuple[Integers, Integers],
    chosen: Integers,
    length: int,
    known: Integers,
    space: Integers,
    keys: Integers,
) -> None:
    """What the removal of each chosen edge changes, so that a better removal compares as larger.

    Sorted numbers are compared by how many there are of the smallest value in which they differ:
    fewer are better. An entry (value - far, -change) says that a value occurs more often, which is
    worse the smaller the value; (far - value, -change) that it occurs less often; (0, 0) that
    nothing else is changed.
    """
    ends, places = edges
    after, near = space[6], space[7]
    for number in range(chosen.size):
        edge = chosen[number]
        size = near_vertices(table, ends[edge], (length - 1) // 2, space[5], near)
        table[2][places[edge, 0]] = table[2][places[edge, 1]] = False
        count_closed_walks(table, near[:size], length, space, after)
        table[2][places[edge, 0]] = table[2][places[edge, 1]] = True
        key, used = keys[edge], 0
        for k in range(size):
            if after[k] == known[near[k]]:
                continue
            for value, change in ((after[k], 1), (known[near[k]], -1)):
                at = used
                while at > 0 and key[at - 1, 0] >= value:
                    key[at] = key[at - 1]
                    at -= 1
                key[at, 0], key[at, 1] = value, change
                used += 1
        kept = at = 0
        while at < used:
            value, change = key[at, 0], 0
            while at < used and key[at, 0] == value:
                change += key[at, 1]
                at += 1
            if change != 0:
                key[kept, 0] = value - _FAR if change > 0 else _FAR - value
                key[kept, 1] = -change
                kept += 1
        key[kept, 0] = key[kept, 1] = 0


@compiled
def best_key(keys: Integers, is_left: NDArray[numpy.bool_]) -> int:
    """The edge whose key is the largest, the first one of several."""
    best = -1
    for edge in range(len(keys)):
        if not is_left[edge]:
            continue
        if best < 0:
            best = edge
            continue
        at = 0
        one, other = keys[edge], keys[best]
        while one[at, 0] == other[at, 0] and one[at, 1] == other[at, 1] and one[at, 0] != 0:
            at += 1
        if one[at, 0] > other[at, 0] or (one[at, 0] == other[at, 0] and one[at, 1] > other[at, 1]):
            best = edge
    return best


def _require_time(graph: Graph, table: _Table, count: int, deadline: Deadline) -> None:
    if deadline.seconds is None or not graph.edges or not count:
        return
    step = max(1, len(graph.edges) // _SAMPLED)
    sampled = range(0, len(graph.edges), step)
    around = 0
    for place in sampled:
        edge = graph.edges[place]
        table.counts(table.near(edge, (table.length - 1) // 2))
        near = table.near(edge, table.length - 1)
        around += sum(graph.degrees[vertex] for vertex in near.tolist())
    each = _SECONDS_EACH_STEP * table.steps / len(sampled)
    looked_at = min(len(graph.edges), around / 2 / len(sampled))
    seconds = count * (
        looked_at * (each + _SECONDS_EACH_EDGE) + len(graph.edges) * _SECONDS_EACH_COMPARISON
    )
    deadline.require_estimate("Removing edges by closed walks (or use one-walk)", seconds)


# --- At random, and by effective resistance -------------------------------------------------------


def _drawn(graph: Graph, count: int, rule: Rule, seed: int) -> list[int]:
    """Places of edges that are not among those drawn to be kept."""
    generator = numpy.random.default_rng(seed)
    total = len(graph.edges)
    shares = None
    if rule is Rule.SPECTRAL and total:
        resistances = effective_resistances(graph, seed=seed)
        shares = resistances / resistances.sum()
    kept: Integers = numpy.zeros(0, numpy.int64)
    if total:
        kept = generator.choice(total, total - count, replace=False, p=shares)
    chosen = set(kept.tolist())
    return [place for place in range(total) if place not in chosen]
