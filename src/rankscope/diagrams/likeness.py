"""When two steps of a network look alike: equal once the numbers in names are left out."""

import re
from collections.abc import Hashable, Iterable

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Box, Call, Step, Sum, diagrams_of
from rankscope.diagrams.parts import Node, Role

NUMBER = re.compile(r"\d+")


def _without_numbers(text: str | None) -> str:
    return NUMBER.sub("#", text or "")


def step_key(step: Step) -> Hashable:
    """Equal for steps that look alike, numbers in names left out."""
    return (
        _without_numbers(step.name),
        _without_numbers(step.label),
        _body_key(step.body),
        tuple(_diagram_key(diagram) for diagram in diagrams_of(step.body)),
    )


def _body_key(body: Body) -> Hashable:
    """What a body has besides its diagrams."""
    match body:
        case Sum():
            return tuple(term.coefficient for term in body.terms)
        case Call():
            return (body.function, body.arguments, body.shapes)
        case Box():
            return (body.class_name, tuple(step_key(step) for step in body.steps))
        case Diagram():
            return ()


def _diagram_key(diagram: Diagram) -> Hashable:
    index_at = {index.name: position for position, index in enumerate(diagram.indices)}
    parts = (*diagram.holders, *diagram.regions)
    part_at = {part.name: position for position, part in enumerate(parts)}

    def at(names: Iterable[str]) -> tuple[int, ...]:
        return tuple(index_at[name] for name in names)

    indices = tuple(
        (index.size, _without_numbers(index.symbol), index.kind, _without_numbers(index.label))
        for index in diagram.indices
    )
    nodes = tuple((at(node.indices), *_node_key(node)) for node in diagram.nodes)
    convolutions = tuple(
        (at(c.indices), c.stride, c.padding, c.dilation, c.padding_mode)
        for c in diagram.convolutions
    )
    regions = tuple(
        (
            tuple(part_at[name] for name in region.members),
            region.function,
            at(region.over),
            region.scale,
            at(region.causal or ()),
            _without_numbers(region.label),
        )
        for region in diagram.regions
    )
    return (indices, nodes, convolutions, regions, at(diagram.output))


def _node_key(node: Node) -> tuple[Hashable, ...]:
    side = None if node.narrow_side is None else node.indices.index(node.narrow_side)
    array = None if node.role is Role.DATA else _without_numbers(node.source)
    label = _without_numbers(node.label or node.name)
    return (node.role, label, array, node.rows, node.is_one_hot, side, node.fill)
