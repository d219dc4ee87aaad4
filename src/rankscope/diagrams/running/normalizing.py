"""Batch normalizations among the terms of a sum.

In inference a batch normalization of x is three terms, x r γ - μ r γ + β with r the reciprocal root
of a variance plus eps, and x itself may be a contraction, such as a convolution. PyTorch has one
call for the three, which is found here on the diagrams: in a schedule the factors r and γ may
already be multiplied into a weight.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Term
from rankscope.diagrams.parts import Node, Region, Role

Positions = tuple[int, ...]


@dataclass(frozen=True)
class NormalizedTerms:
    """Terms of a sum that are one batch normalization.

    Args:
        value: the contraction that is normalized.
        positions: of its legs that a mean and a variance belong to.
        mean, variance, scale, shift: nodes that read the statistics and the learned factors.
        eps: is added to the variance.
        used: places of the other terms of the sum that are part of it.
    """

    value: Diagram
    positions: Positions
    mean: Node
    variance: Node
    scale: Node | None
    shift: Node | None
    eps: float
    used: tuple[int, ...]


@dataclass(frozen=True)
class _Root:
    """The reciprocal root of a variance in a diagram, and the open legs that it stands on."""

    region: Region
    variance: Node
    positions: Positions


def batch_normalizations(terms: Sequence[Term]) -> dict[int, NormalizedTerms]:
    """The normalizations among the terms of a sum, by the place of the term that is normalized."""
    made: dict[int, NormalizedTerms] = {}
    used: set[int] = set()
    for place, term in enumerate(terms):
        if term.coefficient != -1.0:
            continue
        for other, candidate in enumerate(terms):
            free = candidate.coefficient == 1.0 and other not in used
            normalization = _normalization(candidate.diagram, term.diagram) if free else None
            if normalization is None:
                continue
            shifts = _shifts(terms, normalization.positions, used | {other})
            used |= {place, other, *shifts}
            shift = next((_only_node(terms[each].diagram) for each in shifts), None)
            made[other] = replace(normalization, shift=shift, used=(place, *shifts))
            break
    return made


def _normalization(value: Diagram, mean: Diagram) -> NormalizedTerms | None:
    """The normalization of x that x r γ and μ r γ are the first terms of, if they are that."""
    for second in _roots(mean):
        held = [node for node in mean.nodes if node not in (second.variance, *_ones(mean))]
        if mean.convolutions or any(n.indices != second.variance.indices for n in held):
            continue
        for first in _roots(value):
            if not _is_same(first, second):
                continue
            legs = first.variance.indices
            for scale in _scales(value, legs, held):
                left = [node for node in held if scale is None or not _reads_same(node, scale)]
                inner = _without(value, first, scale)
                if len(left) == 1 and inner is not None:
                    eps = float(first.region.function.option("eps"))
                    return NormalizedTerms(
                        inner, first.positions, left[0], first.variance, scale, None, eps, ()
                    )
    return None


def _roots(diagram: Diagram) -> Iterator[_Root]:
    outside = diagram.structure.members[None]
    for region in diagram.regions:
        is_plain = region.function.name == "rsqrt" and region.scale is None and not region.causal
        if not is_plain or region.name not in outside or len(region.members) != 1:
            continue
        variance = diagram.node_by_name.get(region.members[0])
        legs = variance.indices if variance is not None else ()
        if variance is None or not {*legs} <= {*diagram.output} or not legs:
            continue
        positions = tuple(diagram.output.index(leg) for leg in legs)
        if positions == tuple(range(positions[0], positions[0] + len(legs))):
            yield _Root(region, variance, positions)


def _is_same(first: _Root, second: _Root) -> bool:
    return (
        first.positions == second.positions
        and first.region.function == second.region.function
        and _reads_same(first.variance, second.variance)
    )


def _reads_same(first: Node, second: Node) -> bool:
    return (first.source, first.rows, first.role) == (second.source, second.rows, second.role)


def _scales(value: Diagram, legs: tuple[str, ...], held: Sequence[Node]) -> Iterator[Node | None]:
    """A factor that both terms have, or none if the terms have no other factor."""
    if len(held) == 1:
        yield None
    outside = value.structure.members[None]
    for node in value.nodes:
        is_factor = node.name in outside and node.indices == legs
        if is_factor and len(held) == 2 and any(_reads_same(node, each) for each in held):
            yield node


def _without(diagram: Diagram, root: _Root, scale: Node | None) -> Diagram | None:
    """The diagram without its factors, or None if nothing else holds its open legs."""
    gone = {root.variance.name, *(() if scale is None else (scale.name,))}
    nodes = tuple(node for node in diagram.nodes if node.name not in gone)
    held = {index for node in nodes for index in node.indices}
    held |= {convolution.output for convolution in diagram.convolutions}
    is_data = any(node.role is Role.DATA for node in nodes)
    if not is_data or not {*diagram.output} <= held:
        return None
    return replace(
        diagram,
        nodes=nodes,
        indices=tuple(index for index in diagram.indices if index.name in held),
        regions=tuple(region for region in diagram.regions if region is not root.region),
    )


def _ones(diagram: Diagram) -> tuple[Node, ...]:
    return tuple(node for node in diagram.nodes if node.role is Role.CONSTANT and node.fill == 1.0)


def _shifts(terms: Sequence[Term], positions: Positions, used: set[int]) -> tuple[int, ...]:
    """The place of a term that is added along the same legs, if there is one."""
    for place, term in enumerate(terms):
        node = _only_node(term.diagram)
        if term.coefficient != 1.0 or place in used or node is None or node.is_one_hot:
            continue
        if node.indices == tuple(term.diagram.output[each] for each in positions):
            return (place,)
    return ()


def _only_node(diagram: Diagram) -> Node | None:
    """The stored node of a diagram that does nothing but repeat it along its other legs."""
    nodes = [node for node in diagram.nodes if node not in _ones(diagram)]
    is_plain = len(nodes) == 1 and not diagram.regions and not diagram.convolutions
    return nodes[0] if is_plain and nodes[0].role is not Role.DATA else None
