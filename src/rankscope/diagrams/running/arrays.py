"""The arrays behind the nodes: their shapes, who reads them, and how many parameters they hold."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import (
    Call,
    Drawable,
    Step,
    diagrams_of,
    flattened,
    input_arrays,
)
from rankscope.diagrams.parts import PARAMETER_ROLES, Node, Role
from rankscope.diagrams.sizes import resolved_sizes
from rankscope.errors import DiagramError, SizeError


@dataclass(frozen=True)
class Reader:
    """One node that reads an array: the rows it takes, and the shape it gives them."""

    node: str
    rows: tuple[int, int] | None
    shape: tuple[int, ...]

    @property
    def entries(self) -> int:
        """Number of entries that it reads."""
        return math.prod(self.shape)

    @property
    def row_entries(self) -> int:
        """Entries of one row, for a reader of rows."""
        start, stop = self.rows or (0, 1)
        return self.entries // (stop - start)


@dataclass(frozen=True)
class Array:
    """A named array that must be given (data) or learned (parameters).

    Args:
        name: as in `Node.source`.
        is_input: data from the caller, rather than parameters.
        is_integer: it holds the integers of a one-hot node; None if only calls read it, which
            take any numbers.
        readers: the nodes that read it, in order.
        fan: entries that are summed when its first reader is contracted in its region.
        is_parameter: some node reads it as a parameter, so that its entries are counted.
    """

    name: str
    is_input: bool
    is_integer: bool | None
    readers: tuple[Reader, ...]
    fan: int
    is_parameter: bool = False

    @property
    def whole(self) -> tuple[Reader, ...]:
        """Readers of the whole array."""
        return tuple(reader for reader in self.readers if reader.rows is None)

    @property
    def sliced(self) -> tuple[Reader, ...]:
        """Readers of some rows."""
        return tuple(reader for reader in self.readers if reader.rows is not None)

    @property
    def num_rows(self) -> int:
        """How many rows are needed by those who read rows."""
        return max((reader.rows[1] for reader in self.readers if reader.rows), default=0)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape when nobody says otherwise: its first reader's, or a matrix of rows."""
        if not self.sliced:
            return self.readers[0].shape if self.readers else ()
        width = self.sliced[0].row_entries
        return (self.whole[0].entries // width if self.whole else self.num_rows, width)

    @property
    def entries(self) -> int:
        """How many different entries are read; rows that two nodes share are counted once."""
        if self.whole:
            return self.whole[0].entries
        covered: set[int] = set()
        for reader in self.sliced:
            covered.update(range(*(reader.rows or (0, 0))))
        return len(covered) * self.sliced[0].row_entries


def arrays_of(drawable: Drawable) -> tuple[Array, ...]:
    """The inputs of a drawable in order, then its parameters in order of first use.

    Raises:
        SizeError: if a size is missing, or two nodes that share an array differ in size.
        DiagramError: if a node can be given no values, or an array is used in two ways.
    """
    network = flattened(drawable)
    inputs = input_arrays(network)
    made = {name for step in network.steps for name in step.arrays}
    by_name: dict[str, Array | None] = dict.fromkeys(inputs)
    for name, shape in zip(network.inputs, network.input_shapes, strict=False):
        by_name[name] = Array(name, True, None, (Reader(name, None, shape),), 1)  # noqa: FBT003
    for step in network.steps:
        for array in _arrays_of_step(step, made):
            by_name[array.name] = _merge(by_name.get(array.name), array)
    # An input that nobody reads, and an array that is only given back, have any shape.
    constants = {constant.name: constant.shape for constant in network.constants}
    for name in (*inputs, *network.outputs):
        if name not in made and by_name.get(name) is None:
            readers = (Reader(name, None, constants[name]),) if name in constants else ()
            by_name[name] = Array(name, name in inputs, None, readers, 1)
    arrays = tuple(array for array in by_name.values() if array is not None)
    for array in arrays:
        _check_readers(array)
    return arrays


def _arrays_of_step(step: Step, made: Collection[str]) -> Iterator[Array]:
    """The arrays that a step reads and no step makes, with this reader only."""
    if isinstance(step.body, Call):
        for reference in step.body.references:
            node = step.body.diagram.node_by_name[reference.node]
            is_input = node.role is Role.DATA
            if not (is_input and node.source in made):
                reader = Reader(node.name, None, reference.shape)
                yield Array(node.source, is_input, None, (reader,), 1, node.role in PARAMETER_ROLES)
        return
    for diagram in diagrams_of(step.body):
        sizes = resolved_sizes(diagram)
        for node in _stored_nodes(diagram):
            if node.role is Role.DATA and node.source in made:
                continue
            yield Array(
                node.source,
                node.role is Role.DATA,
                node.is_one_hot,
                (reader_of(node, sizes),),
                _fan(diagram, node, sizes),
                node.role in PARAMETER_ROLES,
            )


def reader_of(node: Node, sizes: Mapping[str, int]) -> Reader:
    """How a node reads its array.

    Raises:
        SizeError: if its rows do not divide its entries, or are not an increasing pair.
    """
    held = node.indices[:-1] if node.is_one_hot else node.indices
    reader = Reader(node.name, node.rows, tuple(sizes[index] for index in held))
    if node.rows is not None:
        start, stop = node.rows
        if not 0 <= start < stop or reader.entries % (stop - start):
            raise SizeError(
                f"Node {node.name!r} reads rows {node.rows} of array {node.source!r} into "
                f"{reader.entries:,} entries; rows must be 0 <= start < stop and their number "
                "must divide the entries."
            )
    return reader


def _stored_nodes(diagram: Diagram) -> Iterator[Node]:
    """Nodes whose entries are stored in an array: all but constants."""
    for node in diagram.nodes:
        if node.role is Role.RESULT or (node.is_one_hot and node.role in PARAMETER_ROLES):
            what = "result" if node.role is Role.RESULT else "one-hot parameter"
            raise DiagramError(
                f"Node {node.name!r} of diagram {diagram.name!r} is a {what}, which has no array "
                "of numbers to read; give it the role data."
            )
        if node.role not in (Role.CONSTANT, Role.OPERATION):
            yield node


def _fan(diagram: Diagram, node: Node, sizes: Mapping[str, int]) -> int:
    legs = diagram.structure.legs[diagram.structure.parent[node.name]]
    return math.prod(sizes[index] for index in dict.fromkeys(node.indices) if index not in legs)


def _merge(earlier: Array | None, later: Array) -> Array:
    if earlier is None:
        return later
    for what, first, second in (
        ("data", earlier.is_input, later.is_input),
        ("integers of a one-hot node", earlier.is_integer, later.is_integer),
    ):
        if first != second and None not in (first, second):
            raise DiagramError(
                f"Array {later.name!r} is read as {what} by only one of the nodes "
                f"{earlier.readers[0].node!r} and {later.readers[0].node!r}; use two names."
            )
    return replace(
        earlier,
        readers=earlier.readers + later.readers,
        is_integer=later.is_integer if earlier.is_integer is None else earlier.is_integer,
        is_parameter=earlier.is_parameter or later.is_parameter,
    )


def _check_readers(array: Array) -> None:
    whole, sliced = array.whole, array.sliced
    for reader in whole[1:]:
        if reader.entries != whole[0].entries:
            raise SizeError(
                f"Nodes {whole[0].node!r} and {reader.node!r} share array {array.name!r}, but the "
                f"first has {whole[0].entries:,} entries and the second {reader.entries:,}."
            )
    for reader in sliced[1:]:
        if reader.row_entries != sliced[0].row_entries:
            raise SizeError(
                f"Nodes {sliced[0].node!r} and {reader.node!r} read rows of array {array.name!r}, "
                f"the first of {sliced[0].row_entries:,} entries and the second of "
                f"{reader.row_entries:,}."
            )
    if whole and sliced:
        width, entries = sliced[0].row_entries, whole[0].entries
        if entries % width or entries < array.num_rows * width:
            raise SizeError(
                f"Array {array.name!r} has {entries:,} entries for node {whole[0].node!r}, but "
                f"others read {array.num_rows} rows of {width:,} entries."
            )
