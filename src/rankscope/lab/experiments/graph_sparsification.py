"""`graph-sparsification`: which edges can a graph network do without?

Edges are removed by walk index, at random and by effective resistance, before training; a graph
convolutional network then classifies the vertices. All rules see the same graph, the same labelled
vertices and the same initial weights in each seed.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import networkx
import numpy
import torch
from torch import Tensor, nn

from rankscope.lab.experiments.baselines import BaselineEntry
from rankscope.lab.experiments.claims import Claims, Pair, Score
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_lines import LineFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.wording import worded
from rankscope.networks.datasets import load_data_set
from rankscope.rank.graphs import Graph, from_networkx
from rankscope.rank.sparsification import Rule, sparsify
from rankscope.seeds import seed_of

DEPTH, WIDTH, STEPS = 3, 32, 150
SHARES = (0.5, 0.2)


class GraphName(StrEnum):
    """Zachary's karate club, a block model, and digits joined to their nearest ones."""

    KARATE = "karate"
    BLOCKS = "blocks"
    DIGITS = "digits"


@dataclass(frozen=True, eq=False)
class VertexTask:
    """A graph with features and classes of its vertices.

    Args:
        graph: without loops.
        features: (vertices, features).
        labels: (vertices,).
        is_known: the vertices whose label is trained on; the others are scored.
    """

    graph: Graph
    features: Tensor
    labels: Tensor
    is_known: Tensor


def vertex_task(name: GraphName, seed: int) -> VertexTask:
    """The task of a seed: which vertices are known, and what is random in the graph."""
    generator = numpy.random.default_rng(seed_of("graph", str(name), seed))
    if name is GraphName.KARATE:
        plain = networkx.karate_club_graph()
        graph, nodes = from_networkx(plain)
        labels = numpy.array([plain.nodes[node]["club"] == "Officer" for node in nodes], int)
        features, known = numpy.eye(len(nodes)), 3
    elif name is GraphName.BLOCKS:
        labels = numpy.repeat(numpy.arange(4), 50)
        blocks = [[0.15 if a == b else 0.03 for b in range(4)] for a in range(4)]
        plain = networkx.stochastic_block_model(
            [50] * 4, blocks, seed=int(generator.integers(2**31))
        )
        graph = Graph(200, tuple(plain.edges))
        # One noisy coordinate for each block: alone it tells little.
        features = numpy.eye(4)[labels] + 1.5 * generator.normal(size=(200, 4))
        known = 8
    else:
        graph, features, labels = _digits_graph(generator)
        known = 8
    is_known = numpy.zeros(len(labels), bool)
    for label in numpy.unique(labels):
        own = numpy.flatnonzero(labels == label)
        is_known[generator.choice(own, known, replace=False)] = True
    return VertexTask(
        graph,
        torch.from_numpy(features).float(),
        torch.from_numpy(labels).long(),
        torch.from_numpy(is_known),
    )


def _digits_graph(
    generator: numpy.random.Generator,
) -> tuple[Graph, numpy.ndarray, numpy.ndarray]:
    """300 digits, each joined to the 6 nearest by all pixels; vertices see 6 pixels."""
    data = load_data_set("digits").train
    assert data.targets is not None, "digits have labels"
    chosen = generator.choice(len(data.inputs), 300, replace=False)
    pixels = data.inputs.flatten(1).numpy()[chosen].astype(float)
    distances = numpy.square(pixels[:, None] - pixels[None]).sum(axis=2)
    near = distances.argsort(axis=1)[:, 1:7]
    edges = {(min(i, int(j)), max(i, int(j))) for i in range(300) for j in near[i]}
    spread = pixels.std(axis=0)
    seen = generator.choice(numpy.flatnonzero(spread > 0.1), 6, replace=False)
    return Graph(300, tuple(edges)), pixels[:, seen], data.targets.numpy()[chosen]


class GraphNetwork(nn.Module):
    """Graph convolutions with a rectifier between them.

    Args:
        sizes: of the features, of the layers in between, and of the classes.
        generator: where the initial weights come from.

    Reference:
        Kipf & Welling (2017), arXiv:1609.02907.
    """

    def __init__(self, sizes: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.maps = nn.ParameterList(
            torch.randn(into, out, generator=generator) * (2 / (into + out)) ** 0.5
            for into, out in pairwise(sizes)
        )

    def forward(self, adjacency: Tensor, features: Tensor) -> Tensor:
        """Scores (vertices, classes)."""
        states = features
        for number, weight in enumerate(self.maps):
            states = adjacency @ (states @ weight)
            if number < len(self.maps) - 1:
                states = states.relu()
        return states


def normalized_adjacency(graph: Graph) -> Tensor:
    """Neighbours and the vertex itself, divided by the roots of both degrees."""
    matrix = torch.eye(graph.num_vertices)
    for first, second in graph.edges:
        matrix[first, second] = matrix[second, first] = 1
    scale = matrix.sum(dim=1).rsqrt()
    return scale[:, None] * matrix * scale[None]


def trained_accuracy(task: VertexTask, graph: Graph, seed: int) -> float:
    """Percent of the other vertices that a trained network classifies rightly."""
    generator = torch.Generator().manual_seed(seed_of("weights", seed))
    classes = int(task.labels.max()) + 1
    sizes = (task.features.shape[1], *[WIDTH] * (DEPTH - 1), classes)
    model, adjacency = GraphNetwork(sizes, generator), normalized_adjacency(graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(STEPS):
        optimizer.zero_grad()
        scores = model(adjacency, task.features)
        loss = nn.functional.cross_entropy(scores[task.is_known], task.labels[task.is_known])
        torch.autograd.backward(loss)
        optimizer.step()
    with torch.no_grad():
        guesses = model(adjacency, task.features).argmax(dim=1)
    right = guesses[~task.is_known] == task.labels[~task.is_known]
    return 100 * float(right.double().mean())


@dataclass(frozen=True)
class SparsifiedEntry(Entry):
    """A network on a graph with a share of its edges.

    Args:
        graph: its name.
        rule: which edges stay; None for all.
        share: of the edges that stay.
        seed: of the graph, the known vertices, the removal and the weights.
    """

    graph: GraphName
    rule: Rule | None
    share: float
    seed: int = 0

    @property
    def name(self) -> str:
        """Graph, rule and share."""
        if self.rule is None:
            return f"{self.graph}-all-edges"
        return f"{self.graph}-{self.rule}-{100 * self.share:g}"

    def run(self, context: RunContext) -> Row:
        """The accuracy, and what is left of the graph."""
        del context
        task = vertex_task(self.graph, self.seed)
        rule = self.rule or Rule.RANDOM
        kept = sparsify(task.graph, self.share, depth=DEPTH, rule=rule, seed=self.seed)
        facts = kept.to_dict()
        return {
            "graph": str(self.graph),
            "rule": "all edges" if self.rule is None else str(self.rule),
            "share": self.share,
            "edges": len(kept.graph.edges),
            "isolated": float(str(facts["isolated"])),
            "least walk index": float(str(facts["least_walk_index"])),
            "accuracy": trained_accuracy(task, kept.graph, self.seed),
        }


@dataclass(frozen=True)
class VertexBaseline(BaselineEntry):
    """The most frequent class of the known vertices, or the same network without edges.

    Args:
        graph: its name.
        has_features: whether it is the network.
        seed: as that of the entries.
    """

    graph: GraphName
    has_features: bool
    seed: int = 0

    @property
    def kind(self) -> str:
        """The graph and the method."""
        return f"{self.graph}-{'no-edges' if self.has_features else 'majority'}"

    def score(self, context: RunContext) -> Row:
        """The accuracy on the other vertices."""
        del context
        task = vertex_task(self.graph, self.seed)
        if self.has_features:
            none = Graph(task.graph.num_vertices, ())
            return {"accuracy": trained_accuracy(task, none, self.seed)}
        # Every class has equally many known vertices: the most frequent one of the others.
        others = task.labels[~task.is_known]
        return {"accuracy": 100 * float(others.bincount().max() / len(others))}


def entries(graphs: tuple[GraphName, ...], shares: tuple[float, ...]) -> tuple[Entry, ...]:
    """Baselines, all edges, and every rule at every share."""
    return tuple(
        entry
        for graph in graphs
        for entry in (
            VertexBaseline(graph, has_features=False),
            VertexBaseline(graph, has_features=True),
            SparsifiedEntry(graph, None, 1.0),
            *(SparsifiedEntry(graph, rule, share) for rule in Rule for share in shares),
        )
    )


def _pairs() -> tuple[Pair, ...]:
    pairs = []
    for graph in (GraphName.BLOCKS, GraphName.DIGITS, GraphName.KARATE):
        score = Score("accuracy", "points", is_lower_better=False,
                      baseline=f"baseline-{graph}-no-edges")  # fmt: skip
        for share in reversed(SHARES):
            for first, second in (
                (Rule.WALK, Rule.RANDOM),
                (Rule.WALK, Rule.SPECTRAL),
                (Rule.WALK, Rule.ONE_WALK),
                (Rule.ONE_WALK, Rule.RANDOM),
            ):
                one, other = (f"{graph}-{rule}-{100 * share:g}" for rule in (first, second))
                subject = (
                    f"{worded(graph)}, {100 * share:g} % of the edges: {first} against {second}"
                )
                is_claimed = first is Rule.WALK and second is not Rule.ONE_WALK
                pairs.append(Pair(subject, one, other, score, True if is_claimed else None))
    return tuple(pairs)


GRAPH_SPARSIFICATION = Experiment(
    name="graph-sparsification",
    title="Graph networks on a share of the edges: accuracy in percent by removal rule",
    entries=entries(tuple(GraphName), SHARES),
    quick=entries((GraphName.KARATE,), (0.4,)),
    seconds=120.0,
    seeds=5,
    protocol=(
        "Three graph convolutions of width 32 (Kipf & Welling), 150 steps of Adam at 0.01 with "
        "weight decay 5e-4 on the labels of a few vertices (3 of each class in the karate club, 8 "
        "elsewhere); scored on all other vertices. Blocks: 4 blocks of 50 vertices, joined with "
        "probability 0.15 inside and 0.03 between, with one noisy coordinate for each block. "
        "Digits: 300 images, each joined to the 6 nearest; a vertex sees 6 pixels. Karate: "
        "vertices see their own number. A seed fixes graph, known vertices and initial weights "
        "for all rules. Spectral removal keeps edges drawn by effective resistance."
    ),
    figure=LineFigure(
        "share",
        "accuracy",
        is_logarithmic=False,
        panels=tuple(
            Panel(
                title,
                rf"{graph}-(.+)-\d+",
                baselines=f"{graph}-(.+)",
                levels=f"{graph}-(all-edges)",
            )
            for graph, title in (
                (GraphName.KARATE, "Karate club"),
                (GraphName.BLOCKS, "Blocks"),
                (GraphName.DIGITS, "Digits"),
            )
        ),
        labels={
            "share": "share of the edges kept",
            "walk": "walk index",
            "one-walk": "1-walk index (degrees)",
            "random": "random edges",
            "spectral": "effective resistance",
        },
    ),
    claims=Claims(
        "Does removing edges by walk index cost a graph network less than other rules?",
        _pairs(),
        (Score("accuracy", "points", is_lower_better=False),),
        hypothesis="Removing edges by walk index costs less accuracy than removing them at random "
        "or by spectral sparsification (Razin et al. 2022).",
    ),
)
