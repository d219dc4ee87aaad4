"""Fewer, fuller steps: a value that is read once is drawn where it is read.

A step that is one diagram goes into the diagram that reads it, and stays one picture:
Linear-ReLU-Linear without biases becomes the picture of a perceptron. A step that is a sum goes
only into a term that does nothing but read it. The value of the network does not change.
"""

from collections import Counter
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Network, Step, Sum, Term, nodes_of
from rankscope.diagrams.parts import Node, Role
from rankscope.diagrams.reading.splicing import Bare, bare, cut_legs, renamed, splice, with_reads


@dataclass(frozen=True)
class _Reading:
    """The only place where a step's value is read: which step, and which node."""

    position: int
    node: Node


def inline(network: Network, *, max_nodes: int = 12) -> Network:
    """Put every step that is read exactly once into its reader, where that is possible.

    Args:
        network: what to simplify.
        max_nodes: no diagram grows beyond this many nodes, so that it stays readable.

    Example:
        >>> from rankscope.diagrams.parts import Index
        >>> def layer(number: int) -> Step:
        ...     nodes = (
        ...         Node("X", ("i",), Role.DATA, array=f"x{number}"),
        ...         Node("W", ("i", "j"), array=f"w{number}"),
        ...     )
        ...     indices = (Index("i", 4), Index("j", 4))
        ...     return Step(f"x{number + 1}", Diagram("layer", indices, nodes, ("j",)))
        >>> [step.name for step in inline(Network("deep", (layer(0), layer(1)))).steps]
        ['x2']
    """
    steps = list(network.steps)
    # Moving a step moves its reads but makes none, so they are counted once.
    times_read = Counter(node.source for node in nodes_of(network) if node.role is Role.DATA)
    position = 0
    while position < len(steps) - 1:
        source = steps[position]
        reading = _reading(steps, position) if times_read[source.name] == 1 else None
        body = None
        if reading is not None:
            body = _inlined(steps[reading.position].body, reading.node, source.body, max_nodes)
        if reading is None or body is None:
            position += 1
            continue
        times_read[source.name] = times_read[steps[reading.position].name]
        steps = _replaced(steps, position, reading.position, body)
    return replace(network, steps=tuple(steps))


def _replaced(steps: list[Step], source: int, reader: int, body: Body) -> list[Step]:
    """The steps without the source; a reader that only reordered it takes its name."""
    old, made = steps[reader], replace(steps[reader], body=body)
    if isinstance(old.body, Diagram) and bare(old.body) is not None:
        made = replace(made, name=steps[source].name, label=steps[source].label)
    later = steps[reader + 1 :]
    if made.name != old.name:
        change = {old.name: made.name}
        later = [replace(step, body=with_reads(step.body, change)) for step in later]
    return [*steps[:source], *steps[source + 1 : reader], made, *later]


def _reading(steps: list[Step], source: int) -> _Reading | None:
    """Where a step is read for the first time."""
    for position in range(source + 1, len(steps)):
        for node in nodes_of(steps[position].body):
            if node.source == steps[source].name and node.role is Role.DATA:
                return _Reading(position, node)
    return None


def _inlined(reader: Body, node: Node, source: Body, max_nodes: int) -> Body | None:
    if isinstance(reader, Diagram):
        found = _term_inlined(Term(reader), node, source, max_nodes)
        if found is None:
            return None
        alone = len(found) == 1 and found[0].coefficient == 1.0
        return found[0].diagram if alone else Sum(reader.name, found, reader.title)
    terms: list[Term] = []
    for term in reader.terms:
        # The node is compared by identity: another term may have an equal one.
        holds = any(candidate is node for candidate in term.diagram.nodes)
        found = _term_inlined(term, node, source, max_nodes) if holds else (term,)
        if found is None:
            return None
        terms.extend(found)
    return replace(reader, terms=tuple(terms))


def _term_inlined(term: Term, node: Node, source: Body, max_nodes: int) -> tuple[Term, ...] | None:
    if isinstance(source, Sum):
        return _terms_inlined(term, source)
    if len(term.diagram.nodes) + len(source.nodes) - 1 > max_nodes:
        return None
    spliced = splice(term.diagram, node, source)
    return None if spliced is None else (replace(term, diagram=spliced),)


def _terms_inlined(term: Term, source: Sum) -> tuple[Term, ...] | None:
    reader = bare(term.diagram)
    if reader is None:
        return None
    found = []
    for part in source.terms:
        diagram = _reordered(part.diagram, term.diagram, reader)
        if diagram is None:
            return None
        found.append(Term(diagram, part.coefficient * term.coefficient))
    return tuple(found)


def _reordered(diagram: Diagram, reader: Diagram, only: Bare) -> Diagram | None:
    """A term of a sum, with its legs cut and ordered as a bare reader has them."""
    sizes = [reader.index_by_name[index].size for index in only.node.indices]
    cut = cut_legs(diagram, [size for size in sizes if size is not None])
    if cut is None:
        return None
    named = renamed(cut, reader, only.node)
    return replace(named, output=reader.output)
