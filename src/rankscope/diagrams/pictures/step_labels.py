"""Symbols of the values that pass between the steps of a network."""

from collections.abc import Mapping
from dataclasses import replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.layout.wording import plain_tex
from rankscope.diagrams.network import Body, Box, Call, Step
from rankscope.diagrams.parts import Node, Role
from rankscope.diagrams.repeats import Block


def step_tex(step: Step) -> str:
    r"""The symbol of the array that a step makes, TeX without dollars.

    Example:
        >>> from rankscope.diagrams.parts import Index
        >>> body = Diagram("body", (Index("i"),), (Node("A", ("i",)),), ("i",))
        >>> print(step_tex(Step("norm_1", body)))
        \mathbf{norm\_1}
    """
    return step.label or plain_tex(step.name, face="mathbf")


def with_step_labels(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Give every node that reads a step the symbol of that step, so that lines refer to each other.

    Only the first run of a block is changed: it is the one that is shown. What comes after the
    block reads its last run, and gets the symbols of the first.
    """
    labels: dict[str, str] = {}
    found = []
    for block in blocks:
        shown = []
        for step in block.steps:
            shown.append(replace(step, body=_relabelled(step.body, labels)))
            for place, array in enumerate(step.arrays):
                mark = rf"^{{({place + 1})}}" if place else ""
                labels[array] = step_tex(step) + mark
        for last, first in zip(block.repetitions[-1], block.steps, strict=True):
            labels |= {
                made: labels[shown] for made, shown in zip(last.arrays, first.arrays, strict=True)
            }
        found.append(replace(block, repetitions=(tuple(shown), *block.repetitions[1:])))
    return tuple(found)


def _relabelled(body: Body, labels: Mapping[str, str]) -> Body:
    def node(found: Node) -> Node:
        if found.role is Role.DATA and found.source in labels:
            return replace(found, label=labels[found.source])
        return found

    def diagram(found: Diagram) -> Diagram:
        return replace(found, nodes=tuple(map(node, found.nodes)))

    if isinstance(body, Diagram):
        return diagram(body)
    if isinstance(body, Call | Box):
        return replace(body, diagram=diagram(body.diagram))
    return replace(body, terms=tuple(replace(t, diagram=diagram(t.diagram)) for t in body.terms))
