"""Removing edges: by degrees at a hundred thousand edges, by closed walks at some hundreds."""

from collections.abc import Iterator
from time import process_time

import networkx
import numpy

from rankscope.rank import Graph, Rule, closed_walks, sparsify


def run() -> Iterator[dict[str, object]]:
    """Processor time of each rule for half of the edges; equality first, on a small graph."""
    small = _graph(30, 90)
    assert sparsify(small, 0.5, rule="one-walk").removed == _plain_one_walk(small, 45)
    walks = closed_walks(small, 3)
    matrix = numpy.eye(30, dtype=numpy.int64)
    for first, second in small.edges:
        matrix[first, second] = matrix[second, first] = 1
    assert (numpy.diag(matrix @ matrix @ matrix) == walks).all()
    sparsify(small, 0.5, depth=3)
    for vertices, edges, rules in (
        (400, 1_600, list(Rule)),
        (20_000, 100_000, [Rule.ONE_WALK, Rule.RANDOM, Rule.SPECTRAL]),
    ):
        graph = _graph(vertices, edges)
        for rule in rules:
            started = process_time()
            result = sparsify(graph, 0.5, depth=3, rule=rule, max_seconds=None)
            seconds = process_time() - started
            yield {
                "vertices": vertices,
                "edges": edges,
                "rule": str(rule),
                "seconds": round(seconds, 2),
                "least_walk_index": int(result.closed_walks.min()),
            }
    star = Graph(50_001, tuple((0, vertex) for vertex in range(1, 50_001)))
    started = process_time()
    sparsify(star, 0.5, rule="one-walk")
    yield {"vertices": 50_001, "edges": 50_000, "rule": "one-walk, a star",
           "seconds": round(process_time() - started, 2)}  # fmt: skip


def _graph(vertices: int, edges: int) -> Graph:
    made = networkx.gnm_random_graph(vertices, edges, seed=0)
    return Graph(vertices, tuple(made.edges))


def _plain_one_walk(graph: Graph, count: int) -> tuple[tuple[int, int], ...]:
    """The algorithm written out: every edge is looked at for every removal."""
    left, removed = list(graph.edges), []
    for _ in range(count):
        degrees = Graph(graph.num_vertices, tuple(left)).degrees
        best = max(left, key=lambda edge: sorted(degrees[vertex] for vertex in edge))
        left.remove(best)
        removed.append(best)
    return tuple(removed)
