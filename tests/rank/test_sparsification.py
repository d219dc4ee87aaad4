"""Fewer edges: against the algorithms written out, on all small graphs that hypothesis draws."""

import itertools
import json
from pathlib import Path

import networkx
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.cli.main import main
from rankscope.errors import BudgetError, DataError, SizeError
from rankscope.rank import (
    Graph,
    Partition,
    Rule,
    closed_walks,
    effective_resistances,
    from_networkx,
    read_edge_file,
    sparsify,
    sparsify_networkx,
)


@st.composite
def graphs(draw: st.DrawFn, most: int = 7) -> Graph:
    count = draw(st.integers(2, most))
    pairs = list(itertools.combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    return Graph(count, tuple(edges))


def walk_indices(graph: Graph, depth: int) -> list[int]:
    """Of every vertex against all others, by the definition."""
    return [
        graph.walk_index(Partition.of((t,), order=graph.num_vertices), depth, target=t)
        for t in range(graph.num_vertices)
    ]


def without(graph: Graph, edge: tuple[int, int]) -> Graph:
    return Graph(graph.num_vertices, tuple(one for one in graph.edges if one != edge))


@settings(deadline=None, max_examples=40)
@given(graph=graphs(), depth=st.integers(2, 5))
def test_walk_indices_of_vertices_are_closed_walks(graph: Graph, depth: int) -> None:
    expected = walk_indices(graph, depth)
    assert closed_walks(graph, depth).tolist() == expected
    matrix = numpy.eye(graph.num_vertices, dtype=numpy.int64)
    for first, second in graph.edges:
        matrix[first, second] = matrix[second, first] = 1
    diagonal = numpy.diag(numpy.linalg.matrix_power(matrix, depth))
    with_edges = numpy.array(graph.degrees) > 0
    assert (diagonal * with_edges).tolist() == expected


@settings(deadline=None, max_examples=40)
@given(graph=graphs(6), depth=st.integers(2, 4), keep=st.floats(0, 1))
def test_walk_removes_what_the_algorithm_written_out_removes(
    graph: Graph, depth: int, keep: float
) -> None:
    result = sparsify(graph, keep, depth=depth, rule=Rule.WALK)
    left = graph
    for edge in result.removed:
        scores = {one: sorted(walk_indices(without(left, one), depth)) for one in left.edges}
        assert scores[edge] == max(scores.values())
        left = without(left, edge)
    assert left == result.graph
    assert len(left.edges) == round(keep * len(graph.edges))


@settings(deadline=None, max_examples=30)
@given(graph=graphs(), keep=st.floats(0, 1))
def test_one_walk_removes_by_the_degrees_of_the_ends(graph: Graph, keep: float) -> None:
    result = sparsify(graph, keep, rule="one-walk")
    left = graph
    for edge in result.removed:
        ends = {one: sorted(left.degrees[vertex] for vertex in one) for one in left.edges}
        assert ends[edge] == max(ends.values())
        left = without(left, edge)
    assert left == result.graph
    assert result.removed == sparsify(graph, keep, depth=2, rule="walk").removed


@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_keeps_the_share_and_the_vertices(rule: Rule) -> None:
    graph, _ = from_networkx(networkx.karate_club_graph())
    for keep, wanted in ((0.0, 0), (0.5, 39), (1.0, 78)):
        result = sparsify(graph, keep, depth=3, rule=rule, seed=1)
        assert len(result.graph.edges) == wanted
        assert result.graph.num_vertices == graph.num_vertices
        assert sorted((*result.graph.edges, *result.removed)) == list(graph.edges)
        assert result == sparsify(graph, keep, depth=3, rule=rule, seed=1)


def test_resistances_sum_to_vertices_minus_components_and_projections_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = networkx.disjoint_union(networkx.karate_club_graph(), networkx.cycle_graph(5))
    graph, _ = from_networkx(plain)
    exact = effective_resistances(graph)
    assert exact.sum() == pytest.approx(graph.num_vertices - 2)  # Foster's theorem
    monkeypatch.setattr("rankscope.rank.graphs._MOST_DENSE", 0)
    projected = effective_resistances(graph)
    assert numpy.median(abs(projected / exact - 1)) < 0.15


def test_networkx_graphs_keep_their_attributes() -> None:
    graph = networkx.karate_club_graph()
    result = sparsify_networkx(graph, 0.25, depth=3, rule="walk")
    assert (result.number_of_nodes(), result.number_of_edges()) == (34, 20)
    assert result.nodes[0] == graph.nodes[0]
    assert graph.number_of_edges() == 78
    with pytest.raises(DataError, match="undirected graph with single edges, got a directedgraph"):
        sparsify_networkx(networkx.DiGraph([(0, 1)]), 0.5)


def test_wrong_sizes_are_refused_with_their_numbers() -> None:
    graph = Graph(3, ((0, 1), (1, 2)))
    with pytest.raises(SizeError, match=r"share from 0 to 1, got 1\.5"):
        sparsify(graph, 1.5)
    with pytest.raises(SizeError, match="depth must be at least 2, got 1"):
        sparsify(graph, 0.5, depth=1)
    with pytest.raises(SizeError, match="one of walk, one-walk, random, spectral, got 'best'"):
        sparsify(graph, 0.5, rule="best")
    with pytest.raises(BudgetError, match=r"Walks of 99 steps .* 2 edges may be too many"):
        sparsify(graph, 0.5, depth=99)
    large, _ = from_networkx(networkx.gnm_random_graph(300, 3000, seed=0))
    with pytest.raises(BudgetError, match=r"estimated to take .*, more than the 0\.001 s allowed"):
        sparsify(large, 0.5, depth=3, max_seconds=0.001)


def test_the_command_writes_edges_with_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output = tmp_path / "edges.csv", tmp_path / "kept.txt"
    file.write_text("anna,ben\nben,carl\ncarl,anna\ncarl,dora\n")
    options = ["--keep", "0.75", "--depth", "3", "-o", str(output), "--json"]
    assert main(["sparsify", str(file), *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["removed"] == [["anna", "carl"]]
    assert [row["rule"] for row in document["rules"]] == list(Rule)
    assert document["rules"][0]["least_walk_index"] == min(
        closed_walks(read_edge_file(output).graph, 3)
    )
    assert read_edge_file(output).names == ("anna", "ben", "carl", "dora")
    assert main(["sparsify", str(file), "--depth", "3"]) == 0
    assert "one-walk" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("0 1\n", ["--rule", "best"], "--rule takes one of walk, one-walk, random, spectral"),
        ("0 1\n1 nan\n", [], "line 2: '1 nan' names a missing vertex"),
        ("0 1\n1\n2 3\n", [], "a line names '1' alone, which has edges on other lines"),
        ("0 1\n1 01\n", [], "names one vertex in two ways, 1 and 01"),
        ("0 1\n", ["--keep", "2"], "keep must be a share from 0 to 1, got 2.0"),
        ("0 1\n", ["--depth", "1"], "depth must be at least 2, got 1"),
        ("", [], "it is empty (0 bytes)"),
    ],
)
def test_bad_requests_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    options: list[str],
    message: str,
) -> None:
    file = tmp_path / "edges.txt"
    file.write_text(text)
    assert main(["sparsify", str(file), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
