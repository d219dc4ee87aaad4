r"""Labels for the finished steps: X_0, X_1, … for values, F, F', … for sizes, 1/√D for scales."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Network, Step, Sum, diagrams_of
from rankscope.diagrams.parts import Index, Node, Region, Role
from rankscope.diagrams.reading.labels import input_label
from rankscope.diagrams.reading.sketch import primed

WORD = re.compile(r"[A-Za-z_]\w*")


def captioned(network: Network, inputs: Sequence[str]) -> Network:
    """The same network with a label on every step, and on every node that reads one."""
    labels = {name: input_label(name, position) for position, name in enumerate(inputs)}
    is_single = len(network.steps) == 1
    if is_single and inputs:
        labels[inputs[0]] = r"\mathbf{X}"
    number = 0
    steps = []
    for step in network.steps:
        if step.label is None:
            number += 1
        usual = r"\mathbf{Y}" if is_single else rf"\mathbf{{X}}_{{{number}}}"
        labels[step.name] = step.label or usual
        steps.append(Step(step.name, _body(step.body, labels), labels[step.name]))
    return replace(network, steps=tuple(steps))


def _body(body: Body, labels: Mapping[str, str]) -> Body:
    symbols = _symbols(body)
    if isinstance(body, Sum):
        terms = (
            replace(term, diagram=_diagram(term.diagram, labels, symbols)) for term in body.terms
        )
        return replace(body, terms=tuple(terms))
    return _diagram(body, labels, symbols)


Symbols = Mapping[tuple[str, int | None], int]


def _symbols(body: Body) -> Symbols:
    """How many primes a letter has for each size: none for the size that comes first."""
    found: dict[tuple[str, int | None], int] = {}
    counts: dict[str, int] = {}
    for diagram in diagrams_of(body):
        held = [index for node in diagram.nodes for index in node.indices]
        held += [convolution.output for convolution in diagram.convolutions]
        for index in (diagram.index_by_name[name] for name in held):
            stem = _stem(index)
            if stem and (stem, index.size) not in found:
                found[(stem, index.size)] = counts.get(stem, 0)
                counts[stem] = counts.get(stem, 0) + 1
    return found


def _stem(index: Index) -> str:
    return (index.symbol or "").rstrip("0123456789")


def _diagram(diagram: Diagram, labels: Mapping[str, str], symbols: Symbols) -> Diagram:
    indices = {index.name: _index(index, symbols) for index in diagram.indices}
    words = {
        old.symbol: indices[old.name].symbol or old.symbol for old in diagram.indices if old.symbol
    }
    changed = replace(
        diagram,
        indices=tuple(indices.values()),
        nodes=tuple(_node(node, labels) for node in diagram.nodes),
        regions=tuple(_with_words(region, words) for region in diagram.regions),
    )
    regions = tuple(_with_root(changed, region) for region in changed.regions)
    return replace(changed, regions=regions)


def _index(index: Index, symbols: Symbols) -> Index:
    stem = _stem(index)
    if not stem:
        return index
    primes = symbols[(stem, index.size)]
    if not primes:
        return replace(index, symbol=stem, label=None)
    return replace(index, symbol=f"{stem}{primes + 1}", label=primed(stem, primes))


def _node(node: Node, labels: Mapping[str, str]) -> Node:
    if node.role is not Role.DATA or node.source not in labels:
        return node
    label = labels[node.source]
    if node.rows is not None:
        start, stop = node.rows
        part = f"{start // (stop - start) + 1}" if not start % (stop - start) else f"{start}:{stop}"
        label = rf"{label}^{{({part})}}"
    return replace(node, label=label)


def _with_words(region: Region, words: Mapping[str, str]) -> Region:
    if region.scale is None:
        return region
    scale = WORD.sub(lambda word: words.get(word.group(), word.group()), region.scale)
    return replace(region, scale=scale)


def _with_root(diagram: Diagram, region: Region) -> Region:
    """A number that is one over the root of a summed size is written as that."""
    try:
        number = float(region.scale or "")
    except ValueError:
        return region
    structure = diagram.structure
    held = {
        index
        for name in structure.nodes_inside[region.name]
        for index in diagram.node_by_name[name].indices
    }
    for index in diagram.indices:
        summed = index.name in held and index.name not in structure.legs[region.name]
        if summed and index.size is not None and float(index.size) ** -0.5 == number:
            return replace(region, scale=f"{index.symbol or index.name}**-0.5")
    return region
