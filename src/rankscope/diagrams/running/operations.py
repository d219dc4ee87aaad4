"""The operations of a schedule: what is done with numbered values, one after another.

Arrays are the values 0, 1, …; each operation makes one more, its `target`.
"""

import keyword
import math
import re
from dataclasses import dataclass

from rankscope.diagrams.network import Word
from rankscope.diagrams.parts import Convolution, Function
from rankscope.errors import DiagramError

Indices = tuple[str, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """What all operations have: the value made, the values read, and the shape of the first."""

    target: int
    sources: tuple[int, ...]
    shape: Shape

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
    """One or more operands: multiply along shared indices, sum those that `output` drops.

    With `has_bias`, one more source is added: it has the axes that the weight brings, and the
    weight is the second operand.
    """

    inputs: tuple[Indices, ...]
    output: Indices
    has_bias: bool = False

    @property
    def stored_entries(self) -> int | None:
        """Diagonals and other orders of one operand are views."""
        is_view = len(self.inputs) == 1 and all(index in self.output for index in self.inputs[0])
        return None if is_view else math.prod(self.shape)


@dataclass(frozen=True)
class Spread(Operation):
    """An operand times a constant tensor: sums, copies along new indices, and a factor."""

    inputs: tuple[Indices, ...]
    output: Indices
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
    """An operand with the inputs of convolutions, and one with their kernels.

    With `has_bias`, one more source is added along the axes that the kernel brings.
    """

    inputs: tuple[Indices, ...]
    output: Indices
    convolutions: tuple[Convolution, ...]
    has_bias: bool = False


@dataclass(frozen=True)
class Pick(Operation):
    """Integers that choose along the index `along` of a table."""

    inputs: tuple[Indices, ...]
    output: Indices
    along: str


@dataclass(frozen=True)
class Select(Operation):
    """One entry of an operand along the index `along`, copied along indices it does not have."""

    inputs: tuple[Indices, ...]
    output: Indices
    along: str
    entry: int

    @property
    def stored_entries(self) -> int | None:
        """It only looks at its operand."""
        return None


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
    """A region's function; `over` are the positions it normalizes.

    Sources after the first are a weight, then a bias, of a normalization over the last positions.
    With `in_place`, nobody needs the source afterwards, and it is overwritten.
    """

    function: Function
    over: Shape
    in_place: bool = False


@dataclass(frozen=True)
class Add(Operation):
    """A sum of values, each times its coefficient."""

    coefficients: tuple[float, ...]


@dataclass(frozen=True)
class Attend(Operation):
    """Softmax attention of queries, keys and values: two batch axes, positions, features."""

    scale: float
    is_causal: bool


@dataclass(frozen=True)
class Normalize(Operation):
    """A batch normalization in inference of the axes `positions`, which are neighbours.

    Sources are the value, means, variances, then factors and then shifts, if it has them.
    """

    positions: Shape
    eps: float
    has_scale: bool
    has_shift: bool


@dataclass(frozen=True)
class Source:
    """An argument that is a tensor: its place among the sources of a call."""

    place: int


# What a call may be given: tensors, names of PyTorch, plain values, and tuples of them.
Argument = Source | Word | bool | int | float | str | None | tuple["Argument", ...]

# No attributes of Python's own, except those that are names of operators.
OPERATOR = re.compile(
    r"torch\.ops(\.(?!__(?!(?:and|or|xor|lshift|rshift)__\b))[A-Za-z_][A-Za-z0-9_]*){2,3}"
)
# Operators that open files; what `torch.ops` itself can do is not in a namespace of operators.
FORBIDDEN = re.compile(r"torch\.ops\.(aten\.(save|from_file)|load_library|import_module)\b.*")


@dataclass(frozen=True)
class Invoke(Operation):
    """An operator of PyTorch that is no contraction.

    Args:
        function: its full name, `torch.ops.…`.
        arguments: by name, in order.
        others: shapes of the results after the first, if it returns several; each is then taken
            by an `Item`.

    Raises:
        DiagramError: if the function is no operator or opens files, or an argument's name is no
            word.
    """

    function: str
    arguments: tuple[tuple[str, Argument], ...]
    others: tuple[Shape, ...] | None = None

    def __post_init__(self) -> None:
        if not OPERATOR.fullmatch(self.function) or FORBIDDEN.fullmatch(self.function):
            raise DiagramError(
                "A network may call operators torch.ops.NAMESPACE.NAME.OVERLOAD that open no "
                f"files, got {self.function!r}."
            )
        for name, _ in self.arguments:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or keyword.iskeyword(name):
                raise DiagramError(
                    f"Arguments of {self.function} must be named by words, got {name!r}."
                )

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
