"""Undirected graphs, files of edges, and the walks that message passing counts.

Every vertex is its own neighbour: a walk may stay where it is for a step. A split of the vertices
has a boundary, the vertices with a neighbour on the other side; its walk index is the number of
walks of a given length from there.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from rankscope.budget import require_within
from rankscope.errors import DataError, SizeError
from rankscope.files import plain_file, write_atomically
from rankscope.rank.partition import Partition
from rankscope.strict_json import shown

if TYPE_CHECKING:
    import networkx

Edge = tuple[int, int]
Reals = NDArray[numpy.float64]

MOST_BYTES = 2**28  # of a file of edges: about ten million of them
_MOST_DENSE = 1500  # vertices up to which effective resistances are exact
_PROJECTIONS = 200  # beyond, with a relative error of about (2 / 200)^(1/2)
_SEPARATOR = re.compile(r"[\s,;]+")
_COMMENT = ("#", "%")
_NOT_A_NAME = ("nan", "inf", "-inf", "null", "none", "")


@dataclass(frozen=True)
class Graph:
    """Vertices 0..n-1 and undirected edges between two different ones, each once and sorted.

    Args:
        num_vertices: n.
        edges: pairs of vertices; pairs that name the same two are one edge.

    Example:
        >>> path = Graph(3, ((1, 0), (1, 2), (2, 1)))
        >>> path.edges, path.neighbourhoods
        (((0, 1), (1, 2)), ((0, 1), (0, 1, 2), (1, 2)))

    Raises:
        SizeError: if an edge names a vertex that is not there, or the same one twice.
    """

    num_vertices: int
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        if self.num_vertices < 1:
            raise SizeError(f"Graph: num_vertices must be at least 1, got {self.num_vertices}.")
        for first, second in self.edges:
            if not (0 <= first < self.num_vertices and 0 <= second < self.num_vertices):
                raise SizeError(
                    f"Graph: vertices are 0..{self.num_vertices - 1}, got the edge "
                    f"{first} {second}."
                )
            if first == second:
                raise SizeError(
                    f"Graph: the edge {first} {second} joins a vertex with itself; every vertex "
                    "is its own neighbour already, leave it out."
                )
        known = {(min(edge), max(edge)) for edge in self.edges}
        object.__setattr__(self, "edges", tuple(sorted(known)))

    @classmethod
    def from_edges(cls, edges: Iterable[Sequence[int]], num_vertices: int | None = None) -> "Graph":
        """The graph of some edges; a vertex without one needs `num_vertices` to be said.

        Example:
            >>> Graph.from_edges([(0, 3), (3, 1)])
            Traceback (most recent call last):
            ...
            rankscope.errors.SizeError: The edges name vertices up to 3, but none names vertex 2. \
Say how many vertices there are (--vertices 4) if it has no edge.

        Raises:
            SizeError: if a vertex is missing, or an edge has not two ends.
        """
        listed = [tuple(edge) for edge in edges]
        for edge in listed:
            if len(edge) != 2:
                raise SizeError(f"Graph: an edge joins two vertices, got {edge}.")
        named = {vertex for edge in listed for vertex in edge}
        if num_vertices is None:
            if not named:
                raise SizeError("Graph: there is no edge; say how many vertices there are.")
            count = max(named) + 1
            missing = next((one for one in range(count) if one not in named), None)
            if missing is not None:
                raise SizeError(
                    f"The edges name vertices up to {count - 1}, but none names vertex {missing}. "
                    f"Say how many vertices there are (--vertices {count}) if it has no edge."
                )
            num_vertices = count
        return cls(num_vertices, tuple((edge[0], edge[1]) for edge in listed))

    @cached_property
    def neighbourhoods(self) -> tuple[tuple[int, ...], ...]:
        """For each vertex its neighbours and itself, ascending."""
        found: list[list[int]] = [[vertex] for vertex in range(self.num_vertices)]
        for first, second in self.edges:
            found[first].append(second)
            found[second].append(first)
        return tuple(tuple(sorted(one)) for one in found)

    @property
    def degrees(self) -> tuple[int, ...]:
        """For each vertex the number of its edges."""
        return tuple(len(one) - 1 for one in self.neighbourhoods)

    def walks(self, length: int, target: int | None = None) -> tuple[int, ...]:
        """For each vertex the number of walks of a length from there, to a target or anywhere.

        Example:
            >>> path = Graph(3, ((0, 1), (1, 2)))
            >>> path.walks(1), path.walks(2), path.walks(2, target=0)
            ((2, 3, 2), (5, 7, 5), (2, 2, 1))
        """
        counts = [int(target is None or vertex == target) for vertex in range(self.num_vertices)]
        for _ in range(length):
            counts = [sum(counts[j] for j in near) for near in self.neighbourhoods]
        return tuple(counts)

    def boundary(self, partition: Partition) -> tuple[int, ...]:
        """The vertices with a neighbour on the other side.

        Example:
            >>> Graph(4, ((0, 1), (1, 2), (2, 3))).boundary(Partition((0, 1), (2, 3)))
            (1, 2)
        """
        left = set(partition.left)
        crossing = [edge for edge in self.edges if (edge[0] in left) != (edge[1] in left)]
        return tuple(sorted({vertex for edge in crossing for vertex in edge}))

    def walk_index(self, partition: Partition, depth: int, target: int | None = None) -> int:
        """Walks of length depth - 1 from the boundary of a split, to a target or anywhere.

        Example:
            >>> Graph(4, ((0, 1), (1, 2), (2, 3))).walk_index(Partition((0, 1), (2, 3)), depth=2)
            6

        Reference:
            Razin, Verbin & Cohen (2022), Sec. 4, arXiv:2211.16494.
        """
        counts = self.walks(depth - 1, target)
        return sum(counts[vertex] for vertex in self.boundary(partition))


# --- Files of edges -------------------------------------------------------------------------------


@dataclass(frozen=True)
class NamedGraph:
    """A graph whose vertices have names.

    Args:
        graph: with vertices 0..n-1.
        names: of the vertices, in this order.
    """

    graph: Graph
    names: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """The edges as a file writes them, then vertices without an edge, each alone on a line."""
        for first, second in self.graph.edges:
            yield f"{self.names[first]} {self.names[second]}"
        for vertex, degree in enumerate(self.graph.degrees):
            if degree == 0:
                yield self.names[vertex]


def read_edge_file(path: Path | str) -> NamedGraph:
    """Read a file with an edge on each line: two names, with spaces, tabs or a comma between them.

    Lines that start with # or % are comments; a name alone on a line is a vertex without any edge.
    Whole numbers are sorted as numbers; other names stand as they first come.

    Raises:
        DataError: if the file cannot be read, or a line holds anything else, such as one end of an
            edge.
        BudgetError: if it is too long.
    """
    path = Path(path)
    with plain_file(path, error=DataError) as (file, size):
        require_within(str(path), "the number of bytes", size, MOST_BYTES)
        try:
            text = file.read(MOST_BYTES).decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is no text of edges: {error.reason}.") from error
    rows = list(_rows(path, text))
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise DataError(f"{path} holds no edge; wanted two vertices on each line.")
    if all(name.isdecimal() and name.isascii() for name in names):
        names.sort(key=int)
        doubled = next((pair for pair in pairwise(names) if int(pair[0]) == int(pair[1])), None)
        if doubled is not None:
            raise DataError(f"{path} names one vertex in two ways, {doubled[0]} and {doubled[1]}.")
    joined = {name for row in rows if len(row) == 2 for name in row}
    half = next((row[0] for row in rows if len(row) == 1 and row[0] in joined), None)
    if half is not None:
        raise DataError(
            f"{path}: a line names {shown(half)} alone, which has edges on other lines; an edge "
            "joins two vertices."
        )
    number = {name: at for at, name in enumerate(names)}
    edges = tuple((number[row[0]], number[row[1]]) for row in rows if len(row) == 2)
    return NamedGraph(Graph(len(names), edges), tuple(names))


def read_numbered_edges(path: Path | str) -> tuple[Edge, ...]:
    """The edges of a file whose vertices are numbers; whether one is missing is not looked at.

    Raises:
        DataError: if a vertex is no number or has no edge, or the file is no file of edges.
    """
    named = read_edge_file(path)
    bad = next((name for name in named.names if not name.isdecimal() or not name.isascii()), None)
    if bad is not None:
        raise DataError(f"{path}: vertices are the numbers 0, 1, 2, …, got {shown(bad)}.")
    numbers = [int(name) for name in named.names]
    if 0 in named.graph.degrees:
        raise DataError(
            f"{path}: a line names vertex {numbers[named.graph.degrees.index(0)]} alone, but an "
            f"edge joins two. Leave such lines out, and say how many vertices there are "
            f"(--vertices {max(numbers) + 1})."
        )
    return tuple((numbers[first], numbers[second]) for first, second in named.graph.edges)


def write_edge_file(path: Path | str, named: NamedGraph) -> None:
    """Write a file that `read_edge_file` reads.

    Raises:
        OutputError: if it cannot be written.
    """
    write_atomically(path, ("\n".join(named.lines()) + "\n").encode())


def from_networkx(graph: "networkx.Graph[Any]") -> tuple[Graph, list[Any]]:
    """An undirected networkx graph with its nodes numbered in their order; loops are left out.

    Returns:
        The graph, and the node of each number.

    Raises:
        DataError: if it has directions, several edges between two nodes, or no nodes.
    """
    if graph.is_directed() or graph.is_multigraph():
        kind = "directed" if graph.is_directed() else "multi"
        raise DataError(f"Walks need an undirected graph with single edges, got a {kind}graph.")
    nodes = list(graph.nodes)
    if not nodes:
        raise DataError("The graph has no nodes.")
    number = {node: at for at, node in enumerate(nodes)}
    edges = tuple((number[a], number[b]) for a, b in graph.edges if a != b)
    return Graph(len(nodes), edges), nodes


def _rows(path: Path, text: str) -> Iterator[list[str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(_COMMENT):
            continue
        row = _SEPARATOR.split(stripped)
        bad = next((name for name in row if name.lower() in _NOT_A_NAME), None)
        if bad is not None:
            raise DataError(f"{path}, line {number}: {shown(stripped)} names a missing vertex.")
        if len(row) > 2:
            raise DataError(
                f"{path}, line {number}: an edge joins two vertices, got {len(row)} columns; "
                "edges have no weights here."
            )
        if len(row) == 2 and row[0] == row[1]:
            raise DataError(
                f"{path}, line {number}: {shown(stripped)} joins a vertex with itself; every "
                "vertex is its own neighbour already, leave it out."
            )
        yield row


def effective_resistances(graph: Graph, *, seed: int = 0) -> Reals:
    """For each edge the resistance between its ends, if every edge is a resistor of one ohm.

    Exact up to 1,500 vertices; beyond, by random projections, to about ten percent.

    Example:
        >>> effective_resistances(Graph(3, ((0, 1), (1, 2), (0, 2)))).round(3).tolist()
        [0.667, 0.667, 0.667]

    Reference:
        Spielman & Srivastava (2011), doi:10.1137/080734029.
    """
    from scipy import sparse

    first, second = numpy.array(graph.edges, numpy.int64).reshape(-1, 2).T
    size, places = len(first), numpy.arange(len(first))
    ends = sparse.csr_array(
        (
            numpy.concatenate([numpy.ones(size), -numpy.ones(size)]),
            (numpy.tile(places, 2), numpy.concatenate([first, second])),
        ),
        shape=(size, graph.num_vertices),
    )
    laplacian = (ends.T @ ends).tocsr()
    if graph.num_vertices <= _MOST_DENSE:
        inverse = numpy.linalg.pinv(laplacian.toarray(), hermitian=True)
        exact: Reals = inverse[first, first] + inverse[second, second] - 2 * inverse[first, second]
        return exact
    signs = numpy.random.default_rng(seed).choice((-1.0, 1.0), (_PROJECTIONS, size))
    potentials = _solved(laplacian, (signs @ ends).T / _PROJECTIONS**0.5)
    squared: Reals = numpy.square(potentials[first] - potentials[second]).sum(axis=1)
    return squared


def _solved(laplacian: Any, right: Reals) -> Reals:
    """Conjugate gradients for many right sides at once, preconditioned by the degrees."""
    inverse = 1 / numpy.maximum(laplacian.diagonal(), 1.0)[:, None]
    solution, residual = numpy.zeros_like(right), right.copy()
    direction = inverse * residual
    energy = (residual * direction).sum(axis=0)
    start = energy.copy()
    for _ in range(2000):
        image = laplacian @ direction
        step = energy / numpy.maximum((direction * image).sum(axis=0), 1e-300)
        solution += step * direction
        residual -= step * image
        scaled = inverse * residual
        next_energy = (residual * scaled).sum(axis=0)
        if (next_energy <= 1e-8 * start).all():
            break
        direction = scaled + next_energy / numpy.maximum(energy, 1e-300) * direction
        energy = next_energy
    return solution
