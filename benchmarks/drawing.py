"""Layout and SVG, against the usual way: networkx Kamada-Kawai and matplotlib on the same graph.

The rival draws a plain graph of the same tensors, without hyperedges, barriers or placed labels:
less than we draw. Outlines of labels are cached within a process (so are matplotlib's fonts), so
the first call is reported apart as `first_seconds`; for a module it includes reading it.
"""

import gc
import io
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import networkx
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from torch import nn

from benchmarks.timing import seconds, time_ratio
from rankscope.diagrams.families.catalogue import build_family
from rankscope.diagrams.network import Drawable, DrawableOrBody, Network, diagrams_of
from rankscope.diagrams.repeats import collapse
from rankscope.drawing.checks import lint
from rankscope.drawing.page import compose
from rankscope.drawing.svg import to_svg
from rankscope.drawing.typesetting import outline
from rankscope.reading.network import from_module


def ours(drawable: Drawable) -> str:
    return to_svg(compose(drawable))


def build_and_draw(build: Callable[[], Drawable]) -> str:
    return ours(build())


def rival(graph: "networkx.Graph[str]") -> str:
    figure = Figure(figsize=(12, 4))
    FigureCanvasSVG(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    positions = networkx.kamada_kawai_layout(graph)
    networkx.draw(graph, positions, ax=axes, with_labels=True)
    networkx.draw_networkx_edge_labels(
        graph, positions, networkx.get_edge_attributes(graph, "index"), ax=axes
    )
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    return buffer.getvalue()


def plain_graph(drawables: tuple[DrawableOrBody, ...]) -> "networkx.Graph[str]":
    graph = networkx.Graph()
    for number, diagram in enumerate(part for one in drawables for part in diagrams_of(one)):
        graph.add_nodes_from(f"{number}.{node.name}" for node in diagram.nodes)
        for index, owners in diagram.structure.owners.items():
            for first, second in pairwise(owners):
                graph.add_edge(f"{number}.{first}", f"{number}.{second}", index=index)
    return graph


def transformer(blocks: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False).eval()


def cases() -> Iterator[tuple[str, Callable[[], Drawable]]]:
    yield "multi-head", partial(build_family, "multi-head", {})
    yield "tensor-train-200", partial(build_family, "tensor-train", {"order": 200})
    yield "transformer-12", partial(from_module, transformer(12), (1, 128, 256))


def run() -> Iterator[dict[str, object]]:
    outline("$X$", 20.0)  # matplotlib is imported before anything is timed
    # What torch brings along is not searched for garbage within a timed call.
    gc.collect()
    gc.freeze()
    for name, build in cases():
        first = seconds(partial(build_and_draw, build))
        drawable = build()
        problems = lint(compose(drawable))
        assert not problems, problems[:3]
        shown: tuple[DrawableOrBody, ...] = (drawable,)
        if isinstance(drawable, Network):
            blocks = collapse(drawable)
            assert max(block.count for block in blocks) == 12
            shown = tuple(step.body for block in blocks for step in block.steps)
        graph = plain_graph(shown)
        ratio, median = time_ratio(partial(ours, drawable), partial(rival, graph), repeats=7)
        yield {
            "case": name,
            "time_ratio": round(ratio, 3),
            "seconds": round(median, 4),
            "first_seconds": round(first, 4),
        }
