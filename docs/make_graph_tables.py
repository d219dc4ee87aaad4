"""Measure the tables of docs/graphs.md: `python docs/make_graph_tables.py` (a minute on one core).

Ranks are measured modulo 16777213 at random weights: lower bounds for almost all weights, bold
where they meet the proved upper bound. The rest needs nothing but networkx and scikit-learn.
"""

from pathlib import Path

import networkx
import numpy

from rankscope.networks import by_squares, load_data_set
from rankscope.rank import (
    DataTable,
    Graph,
    MessagePassing,
    Partition,
    Rule,
    canonical_splits,
    from_networkx,
    local_order,
    mean_entropies,
    measure_rank,
    sparsify,
)

PAGE = Path(__file__).parent / "graphs.md"
LARGEST = 7.0  # logarithm to the base 3 of the upper bound up to which a rank is measured
GRAPHS: dict[str, tuple[Graph, tuple[int, ...]]] = {
    "path, 0-1 \\| 2-3": (Graph(4, ((0, 1), (1, 2), (2, 3))), (0, 1)),
    "path, 0-2 \\| 1-3": (Graph(4, ((0, 1), (1, 2), (2, 3))), (0, 2)),
    "cycle of 4, 0-1 \\| 2-3": (Graph(4, ((0, 1), (1, 2), (2, 3), (0, 3))), (0, 1)),
    "star of 5, centre \\| leaves": (Graph(5, ((0, 1), (0, 2), (0, 3), (0, 4))), (0,)),
    "two triangles and an edge": (
        Graph(6, ((0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 5))),
        (0, 1, 2),
    ),
    "complete, 2 \\| 2": (Graph(4, ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))), (0, 1)),
}


def table(names: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown, numbers to the right."""
    marks = ["---", *["---:"] * (len(names) - 1)]
    return [f"| {' | '.join(row)} |" for row in (names, marks, *rows)]


def ranks() -> list[str]:
    """Measured ranks with both bounds."""
    rows = []
    for name, (graph, left) in GRAPHS.items():
        partition = Partition.of(left, order=graph.num_vertices)
        for depth, vertex in ((2, None), (2, left[-1]), (3, left[-1])):
            network = MessagePassing(edges=graph.edges, depth=depth, width=2, vertex=vertex)
            rows.append([name, str(depth), "all" if vertex is None else f"vertex {vertex}",
                         *cells(network, partition)])  # fmt: skip
    names = ["graph and split", "layers", "read at", "walk index", "rank", "at least", "at most",
             "published, at most"]  # fmt: skip
    return table(names, rows)


def cells(network: MessagePassing, partition: Partition) -> list[str]:
    """Walk index, rank and bounds of one network."""
    known = network.known_bounds(partition)
    lower, upper, published = known.best_lower, known.best_upper, known.published
    assert lower is not None, "there is always one"
    assert upper is not None, "there is always one"
    assert published is not None, "there is always one"
    rank = "not measured"
    if upper.log3 <= LARGEST:
        measured = measure_rank(network, partition).lower
        rank = f"**{measured:,}**" if measured == upper.value else f"{measured:,}"
    index = network.graph_split(partition).walk_index
    return [f"{index:,}", rank, lower.number, upper.number, f"2^{4 * index + 1}"]


def karate() -> list[str]:
    """What rules of removal leave of the karate club."""
    graph, _ = from_networkx(networkx.karate_club_graph())
    rows = []
    for keep in (0.7, 0.4, 0.2):
        for rule in Rule:
            facts = sparsify(graph, keep, depth=3, rule=rule).to_dict()
            rows.append([f"{100 * keep:g} %, {rule}", str(facts["kept"]), str(facts["isolated"]),
                         str(facts["least_walk_index"]), f"{facts['median_walk_index']:g}",
                         f"{facts['mean_walk_index']:.1f}"])  # fmt: skip
    names = ["kept, rule", "edges", "isolated", "least walk index", "median", "mean"]
    return table(names, rows)


def digits() -> list[str]:
    """Mean entropies of 8 x 8 digits in three orders."""
    data = load_data_set("digits").train
    assert data.targets is not None, "digits have labels"
    squares = DataTable(by_squares(data.inputs[:, 0].numpy()), data.targets.numpy())
    given = squares.head(400, seed=0)
    shuffled = given.reordered(numpy.random.default_rng(0).permutation(64).tolist())
    orders = {
        "by squares": given,
        "shuffled": shuffled,
        "reordered by correlations": shuffled.reordered(local_order(shuffled.features)),
    }
    rows = []
    for name, one in orders.items():
        means = mean_entropies(canonical_splits(one))
        rows.append([name, *(f"{value:.3f}" for value in means.values())])
    return table(["order of the pixels", *(f"blocks of {64 // 2**k}" for k in range(1, 7))], rows)


TABLES = {"ranks": ranks, "karate": karate, "digits": digits}


def main() -> None:
    """Replace every table of the page between its marks."""
    page = PAGE.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        start, stop = f"<!-- table {name} -->", f"<!-- end {name} -->"
        lines = "\n".join(make())
        before, after = page.split(start)[0], page.split(stop)[1]
        page = f"{before}{start}\n{lines}\n{stop}{after}"
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
