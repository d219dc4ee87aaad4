"""Sums of diagrams, and networks: diagrams in order, where later ones read earlier values.

A diagram uses every value once. Residual branches, biases and deep models use a value many
times, so a `Network` names it: each `Step` computes one array, and a data node whose `array`
is the name of an earlier step reads it (reshaped to the node's own index sizes). Index names
are private to each diagram; only arrays pass between steps.

What is no contraction is a `Call` of a PyTorch operator. A `Box` stands for the steps of a module
that are not shown one by one.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Node, Role
from rankscope.display import counted, picture
from rankscope.errors import DiagramError, SizeError, printable


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

    def __repr__(self) -> str:
        return f"<Sum {printable(self.name)}: {counted(len(self.terms), 'term')}>"

    def _repr_svg_(self) -> str | None:
        return picture(self)


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Reference:
    """An argument that is an array: a node of the call's picture, and the shape it is given in."""

    node: str
    shape: Shape


@dataclass(frozen=True)
class Word:
    """An argument that is a name of PyTorch: `Word("dtype", "float32")` is `torch.float32`.

    `kind` is "dtype", "device", "layout" or "memory_format".
    """

    kind: str
    text: str


# What an operator is given: arrays, plain values, and tuples of both.
Argument = Reference | Word | bool | int | float | str | None | tuple["Argument", ...]
Arguments = tuple[tuple[str, Argument], ...]

OPERATOR = re.compile(r"torch\.ops(\.[A-Za-z_][A-Za-z0-9_]*){2,3}")


@dataclass(frozen=True)
class Call:
    """An operator of PyTorch that is no contraction, drawn as a box with its name and its legs.

    A step called "s" whose operator returns several arrays makes "s", "s:1", "s:2", ….

    Args:
        name: its identity, as that of a diagram.
        function: full name of the operator, such as "torch.ops.aten.max_pool2d.default".
        arguments: by the names of the operator's signature, in order.
        diagram: its picture: the arrays it takes, and one node of the role "operation" between
            them and one open leg for each array it makes; a leg stands for all axes of an array.
        shapes: of the arrays it makes.
        is_exact: it moves numbers, is linear in them (a slice, a concatenation, padding) or has
            equations, so that only its picture is short; otherwise it is *opaque*.
        operations: additions and multiplications that it takes, where that is known.
        title: for people.
        equations: what it computes, in TeX, one line each: the gates of a recurrence.

    Raises:
        DiagramError: if the function is no operator, or an argument names no node.
    """

    name: str
    function: str
    arguments: Arguments
    diagram: Diagram
    shapes: tuple[Shape, ...]
    is_exact: bool = False
    operations: int = 0
    title: str | None = None
    equations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not OPERATOR.fullmatch(self.function):
            raise DiagramError(
                f"Call {self.name!r} must name an operator as torch.ops.NAMESPACE.NAME.OVERLOAD, "
                f"got {self.function!r}."
            )
        for reference in self.references:
            if reference.node not in self.diagram.node_by_name:
                raise DiagramError(
                    f"Call {self.name!r} takes {reference.node!r}, which is none of its nodes: "
                    f"{', '.join(self.diagram.node_by_name)}."
                )

    @property
    def kind(self) -> str:
        """The operator's own name, such as "max_pool2d"."""
        return self.function.split(".")[3]

    @property
    def references(self) -> tuple[Reference, ...]:
        """The arrays among its arguments, in order."""
        return tuple(_references(value for _, value in self.arguments))


def _references(values: "Iterator[Argument] | tuple[Argument, ...]") -> Iterator[Reference]:
    for value in values:
        if isinstance(value, Reference):
            yield value
        elif isinstance(value, tuple):
            yield from _references(value)


@dataclass(frozen=True)
class Box:
    """Steps of a module that are drawn as one box.

    Args:
        name: path of the module.
        class_name: of the module.
        steps: what it computes; they make the arrays that later steps read.
        diagram: its picture, as that of a call.
        made: the arrays that other steps read, or that come out.
        title: for people.
    """

    name: str
    class_name: str
    steps: "tuple[Step, ...]"
    diagram: Diagram
    made: tuple[str, ...]
    title: str | None = None


Body = Diagram | Sum | Call | Box


@dataclass(frozen=True)
class Step:
    """One line of a network: `name` is the array that `body` computes."""

    name: str
    body: Body
    label: str | None = None

    @property
    def arrays(self) -> dict[str, tuple[int | None, ...]]:
        """The arrays that it makes, with their shapes."""
        match self.body:
            case Call(shapes=shapes):
                return {item_name(self.name, place): shape for place, shape in enumerate(shapes)}
            case Box(steps=steps, made=made):
                inside = {name: shape for step in steps for name, shape in step.arrays.items()}
                return {name: inside[name] for name in made}
            case Sum(terms=terms):
                return {self.name: output_shape(terms[0].diagram)}
            case Diagram():
                return {self.name: output_shape(self.body)}

    @property
    def tex(self) -> str:
        """What is written for the array this step makes, TeX without dollars."""
        return self.label or rf"\mathbf{{{self.name}}}"


def item_name(step: str, place: int) -> str:
    """Name of one of several arrays that a step makes."""
    return f"{step}:{place}" if place else step


@dataclass(frozen=True)
class Constant:
    """Numbers that belong to a network, such as a table of positions.

    Args:
        name: of the array.
        shape: of the array.
        dtype: as PyTorch calls it, such as "float32".
        data: the entries row by row, in the machine's little-endian form.
    """

    name: str
    shape: Shape
    dtype: str
    data: bytes

    def __repr__(self) -> str:
        return f"Constant({self.name!r}, {self.shape}, {self.dtype})"


@dataclass(frozen=True)
class Structure:
    """How outputs are put together: "tensor", "value", "tuple", "list", "dict" or a class.

    Args:
        kind: of this part; a class is written "package.module:Name".
        parts: what it holds, in order.
        keys: names of the parts, if they have names.
        value: for a value that is no tensor.
    """

    kind: str
    parts: "tuple[Structure, ...]" = ()
    keys: tuple[str, ...] = ()
    value: bool | int | float | str | None = None


@dataclass(frozen=True)
class Network:
    """Steps in order; the value of the last one is the network's.

    Args:
        name: for people.
        steps: in order.
        title: for people.
        inputs: arrays that are given, in order; by default those that some step reads.
        input_shapes: of the inputs, in order; by default the shapes in which they are read.
        outputs: arrays that come out, in order; by default what the last step makes.
        structure: how the outputs are put together; by default the only one by itself.
        constants: arrays that belong to the network.

    Raises:
        DiagramError: if step names repeat, or a step reads its own or a later value.
        SizeError: if a node reads an array of another number of entries.
    """

    name: str
    steps: tuple[Step, ...]
    title: str | None = None
    inputs: tuple[str, ...] = ()
    input_shapes: tuple[Shape, ...] = ()
    outputs: tuple[str, ...] = ()
    structure: Structure | None = None
    constants: tuple[Constant, ...] = ()

    def __post_init__(self) -> None:
        if not self.steps and not self.outputs:
            raise DiagramError(f"Network {self.name!r} has no steps.")
        made = [step.arrays for step in self.steps]
        all_names = {name for arrays in made for name in arrays}
        done: dict[str, tuple[int | None, ...]] = {}
        for step, arrays in zip(self.steps, made, strict=True):
            for name in arrays:
                if name in done:
                    raise DiagramError(f"Network {self.name!r} has two steps named {name!r}.")
            for node in nodes_of(step.body):
                if node.role is Role.DATA and node.source in all_names:
                    self._check_read(step, node, done)
            done |= arrays
        self._check_outputs(done)

    def __repr__(self) -> str:
        return f"<Network {printable(self.name)}: {counted(len(self.steps), 'step')}>"

    def _repr_svg_(self) -> str | None:
        return picture(self)

    def _check_outputs(self, done: Mapping[str, object]) -> None:
        known = {*done, *self.inputs, *(constant.name for constant in self.constants)}
        for name in self.outputs:
            if name not in known and name not in _stored_arrays(self):
                raise DiagramError(
                    f"Network {self.name!r} should give {name!r}, which no step makes."
                )

    @property
    def results(self) -> tuple[str, ...]:
        """The arrays that come out, in order."""
        return self.outputs or (self.steps[-1].name,)

    @property
    def is_outline(self) -> bool:
        """Whether some steps are drawn as boxes."""
        return any(isinstance(step.body, Box) for step in self.steps)

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


Drawable = Diagram | Sum | Network
DrawableOrBody = Drawable | Call | Box


def _stored_arrays(network: Network) -> set[str]:
    return {node.source for node in nodes_of(network) if node.role is not Role.CONSTANT}


def flattened(drawable: Drawable) -> Network:
    """The network with the steps of every box in its place."""
    network = as_network(drawable)
    if not network.is_outline:
        return network
    return replace(network, steps=tuple(_open_boxes(network.steps)))


def _open_boxes(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        if isinstance(step.body, Box):
            yield from _open_boxes(step.body.steps)
        else:
            yield step


def _entries_read(shape: tuple[int | None, ...], node: Node) -> int | None:
    """How many entries of an array of this shape a node reads: all, or those of its rows."""
    if node.rows is not None and shape[:1] == (1,):
        return None  # Rows are then counted along a later axis.
    start, stop = node.rows or (0, shape[0] if shape else 1)
    sizes = (None if stop is None else stop - start, *shape[1:])
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


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


def diagrams_of(drawable: DrawableOrBody) -> tuple[Diagram, ...]:
    """Every diagram in it, in order."""
    match drawable:
        case Diagram():
            return (drawable,)
        case Sum():
            return tuple(term.diagram for term in drawable.terms)
        case Call() | Box():
            return (drawable.diagram,)
        case Network():
            return tuple(part for step in drawable.steps for part in diagrams_of(step.body))


def nodes_of(drawable: DrawableOrBody) -> Iterator[Node]:
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
    made = {name for step in network.steps for name in step.arrays}
    read = [node.source for node in nodes_of(network) if node.role is Role.DATA]
    return tuple(name for name in dict.fromkeys((*network.inputs, *read)) if name not in made)


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
        # The sizes of a call are those of the example that it was read with.
        steps = [
            replace(step, body=_resized_body(step.body, sizes))
            if isinstance(step.body, Diagram | Sum)
            else step
            for step in drawable.steps
        ]
        return replace(drawable, steps=tuple(steps))
    return _resized_body(drawable, sizes)


def _resized_body(body: Diagram | Sum, sizes: Mapping[str, int]) -> Diagram | Sum:
    if isinstance(body, Diagram):
        return _resized_diagram(body, sizes)
    terms = [replace(t, diagram=_resized_diagram(t.diagram, sizes)) for t in body.terms]
    return replace(body, terms=tuple(terms))


def _resized_diagram(diagram: Diagram, sizes: Mapping[str, int]) -> Diagram:
    known = {*diagram.index_by_name, *diagram.symbols}
    return diagram.with_sizes(**{name: size for name, size in sizes.items() if name in known})
