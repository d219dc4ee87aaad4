"""Attention layers as networks of diagrams: projections, maps and values, output."""

from dataclasses import dataclass

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.functions import Function
from rankscope.diagrams.network import Network, Step
from rankscope.diagrams.parts import Index, IndexKind, Node, Region, Role
from rankscope.layers.attention_projections import PROJECTIONS, Projections
from rankscope.layers.linear_diagram import linear_steps

SOFTMAX = Function("softmax")


@dataclass(frozen=True)
class MixingSketch:
    """How projected queries, keys and values meet.

    Args:
        channels: every index but those of queries and keys.
        score_legs: the channels of queries and of keys.
        value_legs: the channels of values and of outputs.
        cores: learned tensors among the scores.
        scale: of the scores, see `Region`.
        function: of the scores.
    """

    channels: tuple[Index, ...]
    score_legs: tuple[str, ...]
    value_legs: tuple[str, ...]
    cores: tuple[Node, ...] = ()
    scale: str | None = None
    function: Function = SOFTMAX


def head_indices(num_heads: int, head_size: int) -> tuple[Index, Index, Index]:
    """Heads h, and their features d among scores and c among values."""
    heads = Index("h", num_heads, "H", IndexKind.HEAD)
    among_scores, among_values = (Index(x, head_size, "D", IndexKind.FEATURE) for x in "dc")
    return heads, among_scores, among_values


def rank_index(name: str, size: int) -> Index:
    """A channel that is no feature of a head."""
    return Index(name, size, "R", IndexKind.RANK)


def attention_network(
    projections: Projections, sketch: MixingSketch, *, num_queries: int, num_keys: int
) -> Network:
    """One sample without masks: inputs `query`, `key` and `value`, each (length, features)."""
    queries = Index("n", num_queries, "N", IndexKind.SEQUENCE)
    keys = Index("m", num_keys, "M", IndexKind.SEQUENCE)
    steps: list[Step] = []
    for name, rows in zip(PROJECTIONS[:3], (queries, keys, keys), strict=True):
        steps += linear_steps(name[0], projections[name], name, prefix=name, rows=rows)
    nodes = (
        Node("Q", ("n", *sketch.score_legs), Role.DATA, array="q"),
        Node("K", ("m", *sketch.score_legs), Role.DATA, array="k"),
        *sketch.cores,
        Node("V", ("m", *sketch.value_legs), Role.DATA, array="v"),
    )
    members = tuple(node.name for node in nodes[:-1])
    over = ("m",) if sketch.function.normalizes else ()
    maps = Region("A", members, sketch.function, over=over, scale=sketch.scale)
    mixed = Diagram(
        "mixed",
        (queries, keys, *sketch.channels),
        nodes,
        ("n", *sketch.value_legs),
        regions=(maps,),
    )
    steps.append(Step("mixed", mixed, r"\mathbf{O}"))
    steps += linear_steps("y", projections["out"], "mixed", prefix="out", rows=queries)
    return Network("attention", tuple(steps), "Attention")
