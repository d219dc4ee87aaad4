"""Python expressions for tensors, numbers and plain values.

An expression carries its shape, so that orders and shapes that are there already are not written
again. Whatever comes from a diagram becomes a number, a letter of an einsum or a quoted string.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.diagrams.running.operations import Shape
from rankscope.errors import DiagramError


@dataclass(frozen=True)
class Expression:
    """Python code for a tensor.

    Args:
        code: the text.
        shape: the shape that the tensor stands for.
        held: the shape that the code has, if that still has to be expanded to `shape`.
        is_atom: an attribute may be written behind it without parentheses.
        origin: what it is a reshaped view of.
    """

    code: str
    shape: Shape
    held: Shape | None = None
    is_atom: bool = True
    origin: "Expression | None" = None

    @property
    def atom(self) -> str:
        """The code, in parentheses if it needs them before an attribute."""
        return self.code if self.is_atom else f"({self.code})"

    @property
    def actual(self) -> Shape:
        """The shape that the code has."""
        return self.shape if self.held is None else self.held

    @property
    def whole(self) -> "Expression":
        """The value with all its entries, also those that broadcasting would add."""
        if self.actual == self.shape:
            return self
        return Expression(f"{self.atom}.expand{written(self.shape)}", self.shape)

    def reshaped(self, shape: Shape) -> "Expression":
        """The value in another shape; several changes of shape become one."""
        if self.actual != self.shape:
            return self.whole.reshaped(shape)
        if self.shape == shape:
            return self
        origin = self.origin or self
        if origin.shape == shape:
            return origin
        return Expression(f"{origin.atom}.reshape{written(shape)}", shape, origin=origin)

    def permuted(self, order: Shape) -> "Expression":
        """The value with its axes in another order."""
        if order == tuple(range(len(order))):
            return self
        whole, last = self.whole, len(order) - 1
        shape = tuple(whole.shape[place] for place in order)
        moved = [place for place, axis in enumerate(order) if place != axis]
        if moved == [last - 1, last]:
            return Expression(f"{whole.atom}.mT", shape)
        if len(moved) == 2:
            return Expression(f"{whole.atom}.transpose({moved[0]}, {moved[1]})", shape)
        return Expression(f"{whole.atom}.permute{written(order)}", shape)


def written(numbers: Sequence[int]) -> str:
    """Whole numbers as the arguments of a call."""
    return f"({', '.join(str(int(each)) for each in numbers)})" if numbers else "(())"


def number(value: float) -> str:
    """A number as Python reads it back."""
    return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'


def literal(value: object) -> str:
    """A plain value as Python reads it back.

    Raises:
        DiagramError: if it is no text, number, truth value, None, or tuple of those.
    """
    # By exact type: what a class of somebody else says it is written like is not our text.
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    if type(value) is float:
        return number(value)
    if type(value) in (tuple, list) and isinstance(value, Sequence):
        inside = ", ".join(literal(each) for each in value)
        return f"({inside}{',' if len(value) == 1 else ''})"
    raise DiagramError(
        "An argument that is no tensor must be text, a number, True, False, None or a tuple of "
        f"those, got {value!r} of type {type(value).__name__}."
    )


def word(text: str) -> str:
    """A name of PyTorch, such as that of a precision or a memory format.

    Raises:
        DiagramError: if it is no single word.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", text):
        raise DiagramError(f"A name of PyTorch must be one word such as float32, got {text!r}.")
    return text
