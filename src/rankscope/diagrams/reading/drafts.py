"""A step of a network before its indices have names: operands, axis by axis, with letters.

A draft is written like an einsum whose letters stand for whole axes. `align` cuts each letter
into the pieces that all operands agree on, and `draw` gives the pieces names.
"""

import math
from dataclasses import dataclass, replace

from rankscope.diagrams.functions import Function
from rankscope.diagrams.reading.values import Value

Letters = tuple[str, ...]


@dataclass(frozen=True)
class Operand:
    """A node to be: a value with a letter for each of its axes."""

    name: str
    value: Value
    letters: Letters
    label: str | None = None


@dataclass(frozen=True)
class Barrier:
    """A region to be; `over` and `causal` are letters."""

    name: str
    members: tuple[str, ...]
    function: Function
    over: Letters = ()
    scale: str | None = None
    causal: tuple[str, str] | None = None


@dataclass(frozen=True)
class Slide:
    """A convolution to be; its three legs are letters."""

    input: str
    kernel: str
    output: str
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    dilation: int = 1
    padding_mode: str = "zeros"


@dataclass(frozen=True)
class Draft:
    """One term: operands, what stays open, barriers and convolutions, times a number.

    An axis of size 1 is repeated to the size of another only along the letters in `broadcast`.
    """

    operands: tuple[Operand, ...]
    output: Letters
    barriers: tuple[Barrier, ...] = ()
    slides: tuple[Slide, ...] = ()
    coefficient: float = 1.0
    broadcast: Letters = ()

    @property
    def whole_letters(self) -> Letters:
        """Letters that must be one index each."""
        slid = [letter for slide in self.slides for letter in (slide.input, slide.kernel)]
        masked = [letter for barrier in self.barriers for letter in barrier.causal or ()]
        return tuple(dict.fromkeys((*slid, *masked)))

    @property
    def normalized_letters(self) -> Letters:
        """Letters that a barrier normalizes, which must be an index even if they have size 1."""
        return tuple(letter for barrier in self.barriers for letter in barrier.over)

    @property
    def outer_factor(self) -> float:
        """The number in front: its own, and that of the operands outside all barriers."""
        inside = {member for barrier in self.barriers for member in barrier.members}
        factors = [o.value.factor for o in self.operands if o.name not in inside]
        return self.coefficient * math.prod(factors)

    def with_operand(self, old: Operand, new: Operand) -> "Draft":
        """The same draft with one operand exchanged."""
        return replace(self, operands=tuple(new if o is old else o for o in self.operands))
