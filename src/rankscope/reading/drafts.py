"""Drafts: terms written like an einsum whose letters stand for whole axes.

`common_pieces` cuts each letter into the pieces that all operands agree on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope.diagrams.parts import Function
from rankscope.errors import SizeError
from rankscope.reading.views import (
    KEY,
    SEQUENCE,
    ArrayView,
    Axis,
    Piece,
    common_cuts,
    cuts_of,
    size_of,
    split_piece,
)

Letters = tuple[str, ...]


@dataclass(frozen=True)
class Operand:
    """A node to be: a value with a letter for each of its axes."""

    name: str
    value: ArrayView
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


@dataclass(frozen=True)
class End:
    """Where a letter stands: an operand, and the pieces of its axis."""

    operand: Operand
    axis: Axis


@dataclass(frozen=True)
class Clash:
    """Operands whose cuts of one letter do not fit; `operand` should be copied."""

    operand: Operand


def common_pieces(drafts: Sequence[Draft], known: Mapping[str, Axis]) -> dict[str, Axis] | Clash:
    """The pieces of every letter, as fine as needed for all operands.

    Args:
        drafts: the terms of one step.
        known: pieces of letters that no operand has, such as the outputs of convolutions.

    Raises:
        SizeError: if a letter has two sizes.
    """
    pieces_of: dict[str, Axis] = {}
    operands = [operand for draft in drafts for operand in draft.operands]
    broadcast = [letter for draft in drafts for letter in draft.broadcast]
    for letter in dict.fromkeys(letter for o in operands for letter in o.letters):
        ends = [
            End(operand, axis)
            for operand in operands
            for axis, held in zip(operand.value.axes, operand.letters, strict=True)
            if held == letter
        ]
        _check_sizes(letter, ends, least=2 if letter in broadcast else 1)
        thick = [End(end.operand, _thick(end.axis)) for end in ends if size_of(end.axis) > 1]
        if not thick:
            pieces_of[letter] = next((end.axis[:1] for end in ends if end.axis), ())
            continue
        cuts = common_cuts([[piece.size for piece in end.axis] for end in thick])
        if cuts is None:
            return Clash(max(thick, key=lambda end: len(end.axis)).operand)
        pieces_of[letter] = _finest([end.axis for end in thick], cuts)
    return _apart(pieces_of) | dict(known)


def _apart(pieces_of: Mapping[str, Axis]) -> dict[str, Axis]:
    """Different letters get different pieces, even where one value is used twice."""
    seen: set[Piece] = set()
    apart: dict[str, Axis] = {}
    for letter, axis in pieces_of.items():
        fresh = tuple(_twin(piece) if piece in seen else piece for piece in axis)
        seen.update(fresh)
        apart[letter] = fresh
    return apart


def _twin(piece: Piece) -> Piece:
    """The same piece on another leg; where a sequence meets itself, the second holds the keys."""
    return Piece(piece.size, KEY if piece.sort is SEQUENCE else piece.sort)


def _check_sizes(letter: str, ends: Sequence[End], *, least: int) -> None:
    """Refuse two sizes on one letter; sizes below `least` are broadcast."""
    sizes = {size_of(end.axis): end.operand for end in ends if size_of(end.axis) >= least}
    if len(sizes) > 1:
        both = " and ".join(f"{size} in {operand.name!r}" for size, operand in sizes.items())
        raise SizeError(f"Axis {letter!r} has two sizes: {both}.")


def _thick(axis: Axis) -> Axis:
    return tuple(piece for piece in axis if piece.size > 1)


def _finest(axes: Sequence[Axis], cuts: tuple[int, ...]) -> Axis:
    """Pieces for a common cut, named after the axis that is cut most finely already."""
    best = max(axes, key=len)
    return tuple(part for piece in best for part in split_piece(piece, cuts_of(piece, best, cuts)))
