"""A drawable as a straight line of operations on numbered values.

This is what a contraction plan becomes before anything runs. Three readers share it: the
module carries it out, the source writer prints it, and the cost counts what is alive.
Arrays are the values 0, 1, …; each operation makes one more, its `target`.
"""

import math
from dataclasses import dataclass

from rankscope.diagrams.functions import Function
from rankscope.diagrams.network import Word
from rankscope.diagrams.parts import Convolution
from rankscope.diagrams.running.arrays import Array


@dataclass(frozen=True)
class Operation:
    """What all operations have: the value made, the values read, and the shape of the first."""

    target: int
    sources: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def stored_entries(self) -> int | None:
        """How many entries it stores; None when its value is a view of its source."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Read(Operation):
    """A node reads its array, or some rows of it, in a shape of its own. Nothing is copied."""

    rows: tuple[int, int] | None

    @property
    def stored_entries(self) -> int | None:
        """It only looks at its array."""
        return None


@dataclass(frozen=True)
class Fill(Operation):
    """A constant tensor, of the precision of its source if it has one."""

    value: float
    is_integer: bool = False

    @property
    def stored_entries(self) -> int | None:
        """One number, however large the tensor."""
        return 1


@dataclass(frozen=True)
class Multiply(Operation):
    """One or more operands: multiply along shared indices, sum those that `output` drops."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]

    @property
    def stored_entries(self) -> int | None:
        """Diagonals and other orders of one operand are views."""
        is_view = len(self.inputs) == 1 and all(index in self.output for index in self.inputs[0])
        return None if is_view else math.prod(self.shape)


@dataclass(frozen=True)
class Spread(Operation):
    """An operand times a constant tensor: sums, copies along new indices, and a factor."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    factor: float

    @property
    def stored_entries(self) -> int | None:
        """Copies along indices that the operand does not have are never stored."""
        if self.factor == 1.0 and all(index in self.output for index in self.inputs[0]):
            return None
        sizes = zip(self.output, self.shape, strict=True)
        return math.prod(size for index, size in sizes if index in self.inputs[0])


@dataclass(frozen=True)
class Convolve(Operation):
    """An operand with the inputs of convolutions, and one with their kernels."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    convolutions: tuple[Convolution, ...]


@dataclass(frozen=True)
class Pick(Operation):
    """Integers that choose along the index `along` of a table."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    along: str


@dataclass(frozen=True)
class Scale(Operation):
    """A value times a number."""

    factor: float


@dataclass(frozen=True)
class Mask(Operation):
    """Entries whose key position is after their query position become minus infinity."""

    query: int
    key: int


@dataclass(frozen=True)
class Apply(Operation):
    """A region's function; `over` are the positions it normalizes."""

    function: Function
    over: tuple[int, ...]


@dataclass(frozen=True)
class Add(Operation):
    """A sum of values, each times its coefficient."""

    coefficients: tuple[float, ...]


@dataclass(frozen=True)
class Source:
    """An argument that is a tensor: its place among the sources of a call."""

    place: int


# What a call may be given: tensors, names of PyTorch, plain values, and tuples of them.
Argument = Source | Word | bool | int | float | str | None | tuple["Argument", ...]


@dataclass(frozen=True)
class Invoke(Operation):
    """An operator of PyTorch that is no contraction.

    Args:
        function: its full name, `torch.ops.…`.
        arguments: by name, in order.
        others: shapes of the results after the first, if it returns several; each is then taken
            by an `Item`.
    """

    function: str
    arguments: tuple[tuple[str, Argument], ...]
    others: tuple[tuple[int, ...], ...] | None = None

    @property
    def stored_entries(self) -> int | None:
        """All its results together."""
        return sum(math.prod(shape) for shape in (self.shape, *(self.others or ())))


@dataclass(frozen=True)
class Item(Operation):
    """One of several results of a call."""

    place: int

    @property
    def stored_entries(self) -> int | None:
        """The call stores them."""
        return None


@dataclass(frozen=True)
class Schedule:
    """Operations in order.

    Args:
        arrays: inputs, then parameters.
        operations: what to do; a target is never written twice.
        labels: a name for every value, for people.
        last_uses: after each operation, the values that nobody needs any more.
        result: the value to return.
    """

    name: str
    arrays: tuple[Array, ...]
    operations: tuple[Operation, ...]
    labels: tuple[str, ...]
    last_uses: tuple[tuple[int, ...], ...]
    result: int
    results: tuple[int, ...] = ()

    @property
    def num_values(self) -> int:
        """Arrays and results together."""
        return len(self.arrays) + len(self.operations)

    @property
    def num_inputs(self) -> int:
        """How many of the arrays are given by the caller."""
        return sum(array.is_input for array in self.arrays)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of every value; for arrays, the one they have unless another was given."""
        return (
            *(array.shape for array in self.arrays),
            *(operation.shape for operation in self.operations),
        )
