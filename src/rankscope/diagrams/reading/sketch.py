"""Draws a draft whose letters are cut into pieces: names for indices, then the diagram."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Convolution, Index, Node, Region, Role
from rankscope.diagrams.reading.drafts import Barrier, Draft, Letters, Operand, Slide
from rankscope.diagrams.reading.values import Axis, Piece, size_of


@dataclass
class Naming:
    """Names for pieces, the same in all terms of a step."""

    indices: dict[Piece, Index] = field(default_factory=dict)

    def name(self, piece: Piece) -> str:
        """The index that stands for a piece."""
        if piece not in self.indices:
            self.indices[piece] = self._index(piece)
        return self.indices[piece].name

    def _index(self, piece: Piece) -> Index:
        names = {index.name for index in self.indices.values()}
        name = unused(piece.sort.letter, names)
        sizes = {index.symbol: index.size for index in self.indices.values()}
        symbol, primes = piece.sort.symbol, 0
        while sizes.get(symbol, piece.size) != piece.size:
            primes += 1
            symbol = f"{piece.sort.symbol}{primes + 1}"
        label = primed(piece.sort.symbol, primes) if primes else None
        return Index(name, piece.size, symbol, piece.sort.kind, label)


def unused(stem: str, taken: Iterable[str]) -> str:
    """A name that is not taken: the stem, or the stem and the first free number from 2.

    Example:
        >>> unused("f", ["f", "f2"])
        'f3'
    """
    known = set(taken)
    name, number = stem, 2
    while name in known:
        name, number = f"{stem}{number}", number + 1
    return name


def primed(symbol: str, count: int) -> str:
    """TeX for a symbol with primes."""
    return symbol + "^{" + r"\prime" * count + "}"


def draw(name: str, draft: Draft, pieces: Mapping[str, Axis], naming: Naming) -> Diagram:
    """The diagram of one term; open legs that nothing holds are held by a constant of ones."""
    nodes = tuple(_node(operand, pieces, naming) for operand in draft.operands)
    convolutions = tuple(
        _convolution(f"conv{number}", slide, pieces, naming)
        for number, slide in enumerate(draft.slides, 1)
    )
    output = legs(draft.output, pieces, naming)
    held = [index for part in nodes for index in part.indices]
    held += [convolution.output for convolution in convolutions]
    ones = _ones(draft, pieces, naming, held)
    regions = tuple(_region(barrier, draft, pieces, naming) for barrier in draft.barriers)
    used = dict.fromkeys([*held, *(index for part in ones for index in part.indices)])
    by_name = {index.name: index for index in naming.indices.values()}
    indices = tuple(by_name[name] for name in used)
    return Diagram(name, indices, (*nodes, *ones), output, convolutions, regions)


def _convolution(
    name: str, slide: Slide, pieces: Mapping[str, Axis], naming: Naming
) -> Convolution:
    into, kernel, out = legs((slide.input, slide.kernel, slide.output), pieces, naming)
    return Convolution(
        name,
        into,
        kernel,
        out,
        slide.stride,
        slide.padding,
        slide.dilation,
        slide.padding_mode,
    )


def legs(letters: Letters, pieces: Mapping[str, Axis], naming: Naming) -> tuple[str, ...]:
    """Index names of some letters, in order."""
    return tuple(naming.name(piece) for letter in letters for piece in pieces[letter])


def _node(operand: Operand, pieces: Mapping[str, Axis], naming: Naming) -> Node:
    value = operand.value
    new: dict[Piece, Axis] = {}
    for axis, letter in zip(value.axes, operand.letters, strict=True):
        new |= _cut(axis, pieces[letter])
    indices = tuple(naming.name(piece) for old in value.stored for piece in new[old])
    return Node(
        operand.name,
        indices,
        value.role,
        operand.label,
        value.array if value.role is not Role.CONSTANT else None,
        value.rows,
        value.is_one_hot,
        fill=value.fill,
    )


def _cut(axis: Axis, cut: Axis) -> dict[Piece, Axis]:
    """Which pieces of the common cut stand for each piece of an axis."""
    rest, found = list(cut), dict[Piece, Axis]()
    for piece in axis:
        taken: list[Piece] = []
        # A piece of size 1 is kept where all have size 1, and dropped where it is broadcast.
        while rest and (piece.size > size_of(taken) or (piece.size == size_of(cut) and not taken)):
            taken.append(rest.pop(0))
        found[piece] = tuple(taken)
    return found


def _ones(
    draft: Draft, pieces: Mapping[str, Axis], naming: Naming, held: Sequence[str]
) -> tuple[Node, ...]:
    slid = [letter for slide in draft.slides for letter in (slide.input, slide.kernel)]
    letters = dict.fromkeys((*draft.output, *(x for o in draft.operands for x in o.letters)))
    wanted = legs(tuple(letter for letter in letters if letter not in slid), pieces, naming)
    missing = tuple(index for index in dict.fromkeys(wanted) if index not in held)
    if not missing:
        return ()
    return (Node("ones", missing, Role.CONSTANT, r"\mathbf{1}"),)


def _region(barrier: Barrier, draft: Draft, pieces: Mapping[str, Axis], naming: Naming) -> Region:
    factors = [o.value.factor for o in draft.operands if o.name in barrier.members]
    number = math.prod(factors)
    scale = barrier.scale
    if number != 1.0:
        scale = repr(number) if scale is None else f"{number!r}*{scale}"
    causal = None
    if barrier.causal is not None:
        query, key = legs(barrier.causal, pieces, naming)
        causal = (query, key)
    over = legs(barrier.over, pieces, naming)
    return Region(barrier.name, barrier.members, barrier.function, over, scale, causal)
