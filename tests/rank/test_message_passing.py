"""Message passing: its definition, two roads to its values, its bounds and its certificates."""

import itertools
import json
import math
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rankscope.cli.main import main
from rankscope.diagrams import to_module
from rankscope.errors import SizeError
from rankscope.rank import (
    Graph,
    GraphSplit,
    MessagePassing,
    Partition,
    label_upper_bound,
    measure_rank,
    multiset,
)
from rankscope.rank.bounds.graphs import BOTH, LEFT, RIGHT, _images, _Labelling

PRIMES = (16777213, 1073741789)
LARGEST_MEASURED = 5.5  # a logarithm to the base 3: ranks of 400


@st.composite
def splits(draw: st.DrawFn, most_vertices: int = 5, most_layers: int = 3) -> GraphSplit:
    count = draw(st.integers(2, most_vertices))
    pairs = list(itertools.combinations(range(count), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True))
    left = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=count - 1))
    return GraphSplit(
        Graph(count, tuple(edges)),
        Partition.of(sorted(left), order=count),
        depth=draw(st.integers(1, most_layers)),
        width=draw(st.integers(1, 3)),
        target=draw(st.none() | st.integers(0, count - 1)),
    )


def network_of(split: GraphSplit) -> MessagePassing:
    return MessagePassing(
        edges=split.graph.edges,
        num_vertices=split.graph.num_vertices,
        depth=split.depth,
        width=split.width,
        vertex=split.target,
        generator=torch.Generator().manual_seed(1),
    )


@settings(deadline=None, max_examples=40)
@given(split=splits())
def test_the_network_computes_what_is_defined(split: GraphSplit) -> None:
    network = network_of(split).double()
    count, width = split.graph.num_vertices, split.width
    inputs = torch.randn(2, count, width, dtype=torch.float64)
    joined = {frozenset(edge) for edge in split.graph.edges}
    for one, output in zip(inputs, network(inputs), strict=True):
        states = list(one)
        for weight in network.maps:
            sent = [weight @ state for state in states]
            states = [
                math.prod((sent[j] for j in range(count) if j == i or {i, j} in joined), start=1)
                for i in range(count)
            ]
        chosen = states if split.target is None else [states[split.target]]
        torch.testing.assert_close(output, math.prod(state[0] for state in chosen))


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(split=splits(), prime=st.sampled_from(PRIMES))
def test_programs_give_the_values_of_the_defining_equations(split: GraphSplit, prime: int) -> None:
    network = network_of(split)
    fast = network.split(split.partition, seed=3, prime=prime)
    defined = network.reference_split(split.partition, seed=3, prime=prime)
    rows, columns = numpy.array([0, 5, 2]), numpy.array([7, 1])
    assert numpy.array_equal(fast.values(rows, columns), defined.values(rows, columns))


@settings(deadline=None, max_examples=5)
@given(split=splits(most_vertices=3, most_layers=2))
def test_the_diagram_computes_the_network(split: GraphSplit) -> None:
    network = network_of(split)
    inputs = torch.randn(split.graph.num_vertices, split.width)
    arrays = {name: array.detach() for name, array in network.named_parameters()}
    unit = torch.eye(split.width)[0]
    made = to_module(network.diagram(), arrays)(inputs=inputs, unit=unit)
    torch.testing.assert_close(made, network(inputs[None])[0].detach())


@settings(deadline=None, max_examples=20)
@given(split=splits(), scale=st.integers(2, 3))
def test_a_vertex_enters_as_often_as_walks_lead_from_it_to_the_output(
    split: GraphSplit, scale: int
) -> None:
    network, prime = network_of(split), PRIMES[1]
    weights = network.draw_weights(0, prime)
    generator = numpy.random.default_rng(0)
    inputs = generator.integers(0, prime, (1, split.graph.num_vertices, split.width))
    before = int(network.evaluate_modulo(weights, inputs, prime)[0])
    for vertex, degree in enumerate(split.copies[0]):
        scaled = inputs.copy()
        scaled[:, vertex] = scaled[:, vertex] * scale % prime
        after = int(network.evaluate_modulo(weights, scaled, prime)[0])
        assert after == before * pow(scale, degree, prime) % prime
    assert network.input_degree == sum(split.copies[0])
    for name in weights:
        doubled = {**weights, name: weights[name] * scale % prime}
        steps = sum(split.copies[int(name.removeprefix("maps."))])
        after = int(network.evaluate_modulo(doubled, inputs, prime)[0])
        assert after == before * pow(scale, steps, prime) % prime
    assert network.weight_degree == sum(sum(split.copies[layer]) for layer in range(split.depth))


# --- Bounds ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(split=splits())
def test_ranks_lie_between_the_bounds(split: GraphSplit) -> None:
    network = network_of(split)
    known = network.known_bounds(split.partition)
    assert known.best_lower is not None
    assert known.best_upper is not None
    assume(known.best_upper.log3 <= LARGEST_MEASURED)
    measured = measure_rank(network, split.partition)
    assert known.best_lower.holds_for(measured.lower)
    assert known.best_upper.holds_for(measured.lower)
    assert known.published is not None
    assert known.published.holds_for(measured.lower)
    if split.depth == 1:
        assert measured.lower == 1


@settings(deadline=None, max_examples=30)
@given(split=splits(most_vertices=4), data=st.data())
def test_any_labels_bound_the_rank(split: GraphSplit, data: st.DataObject) -> None:
    count = split.graph.num_vertices
    sides = [LEFT if vertex in split.partition.left else RIGHT for vertex in range(count)]
    chosen = st.lists(st.sampled_from((LEFT, RIGHT, BOTH)), min_size=count, max_size=count)
    labels = [sides, *(data.draw(chosen) for _ in range(1, split.depth))]
    bound = math.prod(factor.value or 0 for factor in _Labelling(split, labels).factors())
    assume(network_of(split).upper_bound(split.partition).log3 <= LARGEST_MEASURED)
    assert measure_rank(network_of(split), split.partition).lower <= bound


@settings(deadline=None, max_examples=40)
@given(split=splits(most_vertices=7, most_layers=5))
def test_the_bound_is_below_twice_the_walk_index(split: GraphSplit) -> None:
    assume(split.depth > 1)
    limit = 2 * split.walk_index * math.log(max(1, split.width), 3)
    assert label_upper_bound(split).log3 <= limit + 1e-6


@pytest.mark.parametrize(("width", "target"), [(2, None), (2, 1), (3, 1)])
def test_depth_two_is_a_product_where_both_sides_tell_the_boundary_apart(
    width: int, target: int | None
) -> None:
    # 0-1 | 2-3: vertex 1 is seen by 0 and 1 on the left, vertex 2 by 1 only: different columns.
    graph = Graph(4, ((0, 1), (1, 2), (2, 3)))
    split = GraphSplit(graph, Partition((0, 1), (2, 3)), 2, width, target)
    expected = math.prod(multiset(width, split.copies[1][hub]) for hub in (1, 2))
    measured = measure_rank(network_of(split), split.partition)
    assert measured.upper is not None
    assert (measured.lower, measured.upper.value) == (expected, expected)


def test_one_vertex_against_all_others_is_a_polynomial_of_its_degree() -> None:
    split = GraphSplit(Graph(3, ((0, 1), (1, 2))), Partition((1,), (0, 2)), 3, 2, None)
    measured = measure_rank(network_of(split), split.partition)
    assert measured.lower == multiset(2, split.copies[0][1])


@settings(deadline=None, max_examples=30)
@given(
    rows=st.lists(st.lists(st.integers(-1, 2), min_size=3, max_size=3), min_size=1, max_size=3),
    degrees=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    width=st.integers(1, 3),
)
def test_images_are_counted_as_listed(
    rows: list[list[int]], degrees: list[int], width: int
) -> None:
    monomials = [
        [e for e in itertools.product(range(degree + 1), repeat=width) if sum(e) == degree]
        for degree in degrees
    ]
    images = {
        tuple(sum(row[i] * one[i][c] for i in range(3)) for row in rows for c in range(width))
        for one in itertools.product(*monomials)
    }
    low, high = _images(rows, degrees, width)
    assert (low.value, high.value) == (len(images), len(images))


# --- Commands, bad input --------------------------------------------------------------------------


def test_the_commands_read_a_file_of_edges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "edges.txt"
    file.write_text("# a path\n0 1\n2,1\n2\t3\n")
    options = ["--depth", "2", "--width", "2", "--left", "0,1", "--json"]
    assert main(["rank", "graph", "--edges", str(file), *options]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert main(["rank", "graph", "--edges", "0,1;1,2;2,3", *options]) == 0
    assert json.loads(capsys.readouterr().out)["lower"] == measured["lower"]
    assert main(["bounds", "graph", "--edges", str(file), *options]) == 0
    bounds = json.loads(capsys.readouterr().out)
    assert bounds["best_lower"] == measured["lower"] == bounds["best_upper"]
    picture = tmp_path / "graph.svg"
    settings = ["--set", f"edges={file}", "--set", "depth=2", "--set", "width=2"]
    assert main(["draw", "graph", *settings, "-o", str(picture)]) == 0
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        ("0 1\n1 3\n", "", "none names vertex 2. Say how many vertices there are (--vertices 4)"),
        ("0 1\n1 nan\n", "", "line 2: '1 nan' names a missing vertex"),
        ("0 1\n", "--vertex 2", "vertex must lie in 0..1, got 2"),
        ("0 1\n1\t\n", "", "a line names '1' alone, which has edges on other lines"),
        ("0 1\n2\n", "", "a line names vertex 2 alone, but an edge joins two"),
        ("0 1\n2 2\n", "", "line 2: '2 2' joins a vertex with itself"),
        ("0 1 0.5\n", "", "an edge joins two vertices, got 3 columns"),
        ("0 1\n1 two\n", "", "vertices are the numbers 0, 1, 2, …, got 'two'"),
        ("# nothing\n", "", "holds no edge"),
        ("0 1\n", "--left 2", "positions must lie in 0..1 for order 2, got 2"),
        ("0 1\n", "--vertices 1", "vertices are 0..0, got the edge 0 1"),
        ("0 1\n1 2\n", "--vertices 2", "vertices are 0..1, got the edge 1 2"),
        ("0 1\n", "--depth 40 --width 9", "fits"),
    ],
)
def test_bad_edges_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edges: str, options: str, message: str
) -> None:
    file = tmp_path / "edges.txt"
    file.write_text(edges)
    sizes = [] if "--depth" in options else ["--depth", "2", "--width", "2"]
    assert main(["rank", "graph", "--edges", str(file), *sizes, *options.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_edges_of_one_end_or_many_are_refused() -> None:
    with pytest.raises(SizeError, match=r"an edge joins two vertices, got \(0, 1, 2\)"):
        MessagePassing(edges=((0, 1, 2),), depth=1, width=1)
