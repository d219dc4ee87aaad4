"""Sums of diagrams, and networks: diagrams in order, where later ones read earlier values.

A diagram uses every value once. Residual branches, biases and deep models use a value many
times, so a `Network` names it: each `Step` computes one array, and a data node whose `array`
is the name of an earlier step reads it (reshaped to the node's own index sizes). Index names
are private to each diagram; only arrays pass between steps.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Node, Role
from rankscope.errors import DiagramError, SizeError


@dataclass(frozen=True)
class Term:
    """A diagram times a number, inside a sum."""

    diagram: Diagram
    coefficient: float = 1.0


@dataclass(frozen=True)
class Sum:
    """Diagrams with the same open legs, added: residuals, biases, low-rank updates.

    Raises:
        DiagramError: if it is empty, or two terms differ in their open legs.
    """

    name: str
    terms: tuple[Term, ...]
    title: str | None = None

    def __post_init__(self) -> None:
        if not self.terms:
            raise DiagramError(f"Sum {self.name!r} has no terms.")
        first = self.terms[0].diagram
        for term in self.terms[1:]:
            if output_shape(term.diagram) != output_shape(first):
                raise DiagramError(
                    f"Sum {self.name!r}: {first.name!r} has open legs "
                    f"{first.output} of sizes {output_shape(first)}, but {term.diagram.name!r} has "
                    f"{term.diagram.output} of sizes {output_shape(term.diagram)}."
                )


Body = Diagram | Sum


@dataclass(frozen=True)
class Step:
    """One line of a network: `name` is the array that `body` computes."""

    name: str
    body: Body
    label: str | None = None

    @property
    def tex(self) -> str:
        """What is written for the array this step makes, TeX without dollars."""
        return self.label or rf"\mathbf{{{self.name}}}"


@dataclass(frozen=True)
class Network:
    """Steps in order; the value of the last one is the network's.

    Raises:
        DiagramError: if step names repeat, or a step reads its own or a later value.
        SizeError: if a node reads an array of another number of entries.
    """

    name: str
    steps: tuple[Step, ...]
    title: str | None = None

    def __post_init__(self) -> None:
        if not self.steps:
            raise DiagramError(f"Network {self.name!r} has no steps.")
        all_names = [step.name for step in self.steps]
        done: dict[str, tuple[int | None, ...]] = {}
        for step in self.steps:
            if step.name in done:
                raise DiagramError(f"Network {self.name!r} has two steps named {step.name!r}.")
            for node in nodes_of(step.body):
                if node.role is Role.DATA and node.source in all_names:
                    self._check_read(step, node, done)
            done[step.name] = output_shape(diagrams_of(step.body)[0])

    def _check_read(self, step: Step, node: Node, done: dict[str, tuple[int | None, ...]]) -> None:
        if node.source not in done:
            raise DiagramError(
                f"Step {step.name!r} of network {self.name!r} reads {node.source!r} "
                "before it is computed."
            )
        wanted = next(
            entries(diagram, node)
            for diagram in diagrams_of(step.body)
            if diagram.node_by_name.get(node.name) == node
        )
        made = _entries_read(done[node.source], node)
        if made is not None and wanted is not None and made != wanted:
            raise SizeError(
                f"Step {step.name!r} reads {node.source!r} through node {node.name!r} of "
                f"{wanted:,} entries, but it has {made:,}."
            )


def _entries_read(shape: tuple[int | None, ...], node: Node) -> int | None:
    """How many entries of an array of this shape a node reads: all, or those of its rows."""
    start, stop = node.rows or (0, shape[0] if shape else 1)
    sizes = (None if stop is None else stop - start, *shape[1:])
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


Drawable = Diagram | Sum | Network


def entries(diagram: Diagram, node: Node) -> int | None:
    """How many numbers a node's array holds; None when a size is not known.

    The values of a one-hot node are integers, so its last index does not count.
    """
    held = node.indices[:-1] if node.is_one_hot else node.indices
    sizes = [diagram.index_by_name[index].size for index in held]
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def output_shape(diagram: Diagram) -> tuple[int | None, ...]:
    """Sizes of the open legs, in order."""
    return tuple(diagram.index_by_name[index].size for index in diagram.output)


def diagrams_of(drawable: Drawable) -> tuple[Diagram, ...]:
    """Every diagram in it, in order."""
    match drawable:
        case Diagram():
            return (drawable,)
        case Sum():
            return tuple(term.diagram for term in drawable.terms)
        case Network():
            return tuple(part for step in drawable.steps for part in diagrams_of(step.body))


def nodes_of(drawable: Drawable) -> Iterator[Node]:
    """Every node in it, in order."""
    for diagram in diagrams_of(drawable):
        yield from diagram.nodes


def as_network(drawable: Drawable) -> Network:
    """A diagram or a sum as a network of one step; a network as it is."""
    if isinstance(drawable, Network):
        return drawable
    return Network(drawable.name, (Step("result", drawable),), drawable.title)


def input_arrays(drawable: Drawable) -> tuple[str, ...]:
    """Arrays that must be given: data that no step computes, in order of first use."""
    network = as_network(drawable)
    made = {step.name for step in network.steps}
    read = [node.source for node in nodes_of(network) if node.role is Role.DATA]
    return tuple(name for name in dict.fromkeys(read) if name not in made)


def drawable_with_sizes(drawable: Drawable, sizes: Mapping[str, int]) -> Drawable:
    """Give sizes to symbols or indices wherever they occur.

    Raises:
        SizeError: if a name occurs nowhere.
    """
    diagrams = diagrams_of(drawable)
    known = {name for diagram in diagrams for name in (*diagram.index_by_name, *diagram.symbols)}
    for name in sizes:
        if name not in known:
            raise SizeError(f"{drawable.name!r} has no index or symbol {name!r}.")
    if isinstance(drawable, Network):
        steps = [replace(step, body=_resized_body(step.body, sizes)) for step in drawable.steps]
        return replace(drawable, steps=tuple(steps))
    return _resized_body(drawable, sizes)


def _resized_body(body: Body, sizes: Mapping[str, int]) -> Body:
    if isinstance(body, Diagram):
        return _resized_diagram(body, sizes)
    terms = [replace(t, diagram=_resized_diagram(t.diagram, sizes)) for t in body.terms]
    return replace(body, terms=tuple(terms))


def _resized_diagram(diagram: Diagram, sizes: Mapping[str, int]) -> Diagram:
    known = {*diagram.index_by_name, *diagram.symbols}
    return diagram.with_sizes(**{name: size for name, size in sizes.items() if name in known})
