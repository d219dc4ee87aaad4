"""A tensor inside a module, as an array and how its axes are cut and ordered.

Transposing, reshaping, squeezing and expanding move no numbers in a diagram: a node reads an
array row by row with any cut into indices. So a view remembers the *pieces* its array is cut
into, in the order they are stored, and which pieces each axis is made of. Only when a new
shape cuts across pieces that are not neighbours must the array be copied.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rankscope.diagrams.parts import IndexKind, Role
from rankscope.errors import UnsupportedModuleError


@dataclass(frozen=True)
class Sort:
    """The letter that starts an index's name, its symbol, and its kind."""

    letter: str
    symbol: str
    kind: IndexKind = IndexKind.GENERIC


GENERIC = Sort("i", "I")
BATCH = Sort("b", "B", IndexKind.BATCH)
SEQUENCE = Sort("n", "N", IndexKind.SEQUENCE)
KEY = Sort("m", "M", IndexKind.SEQUENCE)
FEATURE = Sort("f", "F", IndexKind.FEATURE)
CHANNEL = Sort("c", "C", IndexKind.FEATURE)
GROUP = Sort("g", "G")
HEAD = Sort("h", "H", IndexKind.HEAD)
HEAD_FEATURE = Sort("d", "D", IndexKind.FEATURE)
VOCABULARY = Sort("v", "V")
DEPTH = Sort("z", "T", IndexKind.SPACE)
HEIGHT = Sort("y", "H", IndexKind.SPACE)
WIDTH = Sort("x", "W", IndexKind.SPACE)
LENGTH = Sort("x", "L", IndexKind.SPACE)
PART = Sort("p", "P")

SPACES: dict[int, tuple[Sort, ...]] = {
    1: (LENGTH,),
    2: (HEIGHT, WIDTH),
    3: (DEPTH, HEIGHT, WIDTH),
}
KERNELS: dict[int, tuple[Sort, ...]] = {
    1: (Sort("u", "K", IndexKind.SPACE),),
    2: (Sort("u", "K", IndexKind.SPACE), Sort("v", "K", IndexKind.SPACE)),
    3: (
        Sort("t", "K", IndexKind.SPACE),
        Sort("u", "K", IndexKind.SPACE),
        Sort("v", "K", IndexKind.SPACE),
    ),
}


def guess(order: int) -> tuple[Sort, ...]:
    """The usual meaning of the axes of an input, until a layer says otherwise.

    Example:
        >>> [sort.symbol for sort in guess(4)]
        ['B', 'C', 'H', 'W']
    """
    usual: dict[int, tuple[Sort, ...]] = {
        1: (FEATURE,),
        2: (BATCH, FEATURE),
        3: (BATCH, SEQUENCE, FEATURE),
        4: (BATCH, CHANNEL, *SPACES[2]),
        5: (BATCH, CHANNEL, *SPACES[3]),
    }
    return usual.get(order, (GENERIC,) * order)


def parts_of(sort: Sort, count: int) -> tuple[Sort, ...]:
    """The meaning of the parts of a split axis: features are split into heads."""
    if sort.kind is not IndexKind.FEATURE or sort is HEAD_FEATURE:
        return (sort,) * count
    return ((PART,) * max(0, count - 2) + (HEAD, HEAD_FEATURE))[-count:] if count > 1 else (sort,)


@dataclass(frozen=True, eq=False)
class Piece:
    """One index that an array is cut into; two pieces are the same only if they are one object."""

    size: int
    sort: Sort


Axis = tuple[Piece, ...]


@dataclass(frozen=True, eq=False)
class ArrayView:
    """An array, and how to see it as a tensor.

    Args:
        array: name of the input, step, parameter or buffer that holds the numbers.
        stored: the pieces of the array, in row-major order.
        axes: the pieces of each axis; a piece that is not stored is repeated along it, and an
            axis without pieces has size 1.
        role: what its nodes are for.
        factor: a number that multiplies all entries.
        row_entries: how many entries one row of the array has (a row fixes its first axis).
        rows: the rows of the array that are used; all by default.
        causal: (query, key) pieces when entries with a key after the query are minus infinity.
        fill: for a constant, the value of every entry.
        is_one_hot: the array holds integers, and the last axis runs over their values.
    """

    array: str
    stored: tuple[Piece, ...]
    axes: tuple[Axis, ...]
    role: Role = Role.DATA
    factor: float = 1.0
    row_entries: int = 1
    rows: tuple[int, int] | None = None
    causal: tuple[Piece, Piece] | None = None
    fill: float = 1.0
    is_one_hot: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(size_of(axis) for axis in self.axes)

    @property
    def flat(self) -> tuple[Piece, ...]:
        """All pieces in the order of the axes."""
        return tuple(piece for axis in self.axes for piece in axis)

    @property
    def is_expanded(self) -> bool:
        """Whether some axis repeats the array instead of holding it."""
        return len(self.flat) > len(self.stored)

    @property
    def is_plain(self) -> bool:
        """Whether its array, read row by row in its shape, is the value."""
        thick = [piece for piece in self.stored if piece.size > 1]
        return (
            thick == [piece for piece in self.flat if piece.size > 1]
            and self.role is not Role.CONSTANT
            and self.rows is None
            and self.causal is None
            and self.factor == 1.0
            and not self.is_one_hot
        )

    def position(self, axis: int) -> int:
        """An axis counted from the front."""
        return axis + len(self.axes) if axis < 0 else axis


def size_of(pieces: Iterable[Piece]) -> int:
    """How many positions an axis of these pieces has."""
    return math.prod(piece.size for piece in pieces)


def whole(array: str, shape: Sequence[int], sorts: Sequence[Sort], role: Role) -> ArrayView:
    """An array seen as it is stored, one piece per axis.

    Example:
        >>> whole("weight", (2, 3), (FEATURE, FEATURE), Role.PARAMETER).shape
        (2, 3)
    """
    pieces = tuple(Piece(size, sort) for size, sort in zip(shape, sorts, strict=True))
    axes = tuple((piece,) for piece in pieces)
    # Rows are counted along the first axis that has several positions.
    thick = next((place for place, size in enumerate(shape) if size > 1), 0)
    return ArrayView(array, pieces, axes, role, row_entries=math.prod(shape[thick + 1 :]))


def relabelled(value: ArrayView, sorts: Sequence[Sort | None]) -> ArrayView:
    """The same value whose axes mean something else; None keeps what an axis means."""
    new: dict[Piece, Piece] = {}
    for axis, sort in zip(value.axes, sorts, strict=True):
        if sort is not None and len(axis) == 1:
            new[axis[0]] = Piece(axis[0].size, sort)
    return _replaced(value, {old: (piece,) for old, piece in new.items()})


def _replaced(value: ArrayView, new: dict[Piece, Axis]) -> ArrayView:
    """Put other pieces in the place of some."""
    stored = tuple(piece for old in value.stored for piece in new.get(old, (old,)))
    axes = tuple(tuple(p for old in axis for p in new.get(old, (old,))) for axis in value.axes)
    causal = value.causal
    if causal is not None:
        query, key = (new.get(piece, (piece,)) for piece in causal)
        causal = (query[0], key[0])
    return replace(value, stored=stored, axes=axes, causal=causal)


def permuted(value: ArrayView, order: Sequence[int]) -> ArrayView:
    """The axes in another order."""
    return replace(value, axes=tuple(value.axes[axis] for axis in order))


def unsqueezed(value: ArrayView, axis: int) -> ArrayView:
    """A new axis of size 1."""
    axes = list(value.axes)
    axes.insert(axis if axis >= 0 else axis + len(axes) + 1, ())
    return replace(value, axes=tuple(axes))


def squeezed(value: ArrayView, axis: int) -> ArrayView:
    """The value without an axis of size 1; an axis of another size stays, as in PyTorch."""
    if value.shape[axis] != 1:
        return value
    gone = value.axes[axis]
    axes = (*value.axes[:axis], *value.axes[axis + 1 :])
    return replace(value, axes=axes, stored=tuple(p for p in value.stored if p not in gone))


def expanded(value: ArrayView, axis: int, piece: Piece) -> ArrayView:
    """An axis of size 1 repeated along a new piece."""
    gone = value.axes[axis]
    axes = (*value.axes[:axis], (piece,), *value.axes[axis + 1 :])
    return replace(value, axes=axes, stored=tuple(p for p in value.stored if p not in gone))


def scaled(value: ArrayView, number: float) -> ArrayView:
    """A value times a number.

    Raises:
        UnsupportedModuleError: if a masked value would lose its minus infinities.
    """
    if value.causal is not None and number <= 0.0:
        raise UnsupportedModuleError(
            f"a masked value times {number}, which turns its minus infinities into others"
        )
    return replace(value, factor=value.factor * number)


def merged(value: ArrayView, axis: int) -> ArrayView | None:
    """The same value with one piece on an axis, or None if its pieces are not neighbours."""
    pieces = value.axes[axis]
    if len(pieces) < 2:
        return value
    new = (Piece(size_of(pieces), pieces[0].sort),)
    stored = _restored(value, pieces, new)
    if stored is None:
        return None
    axes = (*value.axes[:axis], new, *value.axes[axis + 1 :])
    return replace(value, stored=stored, axes=axes)


def reshaped(value: ArrayView, shape: Sequence[int]) -> ArrayView | None:
    """Cut the entries, read row by row, into another shape; None if they must be copied first.

    Axes at the front and at the back that keep their size keep their pieces.
    """
    old, new = value.shape, tuple(shape)
    front = _equal_front(old, new)
    back = min(_equal_front(old[::-1], new[::-1]), len(old) - front, len(new) - front)
    stop, middle = len(old) - back, new[front : len(new) - back]
    if value.causal is not None and stop > front:
        return None  # A mask belongs to two whole axes.
    pieces = tuple(p for axis in value.axes[front:stop] for p in axis if p.size > 1)
    thin = tuple(p for axis in value.axes[front:stop] for p in axis if p.size == 1)
    value = replace(value, stored=tuple(p for p in value.stored if p not in thin))
    cuts = common_cuts([[piece.size for piece in pieces], middle])
    if cuts is None:
        return _reread(value, pieces, middle, slice(front, stop))
    split = {piece: split_piece(piece, cuts_of(piece, pieces, cuts)) for piece in pieces}
    flat = [part for piece in pieces for part in split[piece]]
    axes = tuple(_taken(flat, size) for size in middle)
    kept = _replaced(value, split)
    return replace(kept, axes=(*kept.axes[:front], *axes, *kept.axes[stop:]))


def _reread(
    value: ArrayView, pieces: Axis, middle: tuple[int, ...], place: slice
) -> ArrayView | None:
    """Forget the cuts between pieces that are neighbours, and cut again."""
    sorts = [piece.sort for piece in pieces]
    thick = [size for size in middle if size > 1]
    new = tuple(
        Piece(size, sorts[min(position, len(sorts) - 1)]) for position, size in enumerate(thick)
    )
    stored = _restored(value, pieces, new)
    if stored is None:
        return None
    flat = list(new)
    axes = tuple(_taken(flat, size) for size in middle)
    return replace(
        value, stored=stored, axes=(*value.axes[: place.start], *axes, *value.axes[place.stop :])
    )


def _restored(value: ArrayView, pieces: Axis, new: Axis) -> tuple[Piece, ...] | None:
    """The array with other pieces in the place of neighbours, or None if they are apart."""
    for start in range(len(value.stored) - len(pieces) + 1):
        if value.stored[start : start + len(pieces)] == pieces:
            return (*value.stored[:start], *new, *value.stored[start + len(pieces) :])
    return None


def _equal_front(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    while count < min(len(first), len(second)) and first[count] == second[count]:
        count += 1
    return count


def _taken(flat: list[Piece], size: int) -> Axis:
    """Take pieces from the front of a list until they make up a size."""
    taken: list[Piece] = []
    while size_of(taken) < size:
        taken.append(flat.pop(0))
    return tuple(taken)


def common_cuts(groups: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """The coarsest cut that refines every group of sizes, or None if they cut across.

    Example:
        >>> common_cuts([(6, 4), (3, 8)])
        (3, 2, 4)
        >>> common_cuts([(2, 3), (3, 2)]) is None
        True
    """
    borders = {1}
    for sizes in groups:
        border = 1
        for size in sizes:
            border *= size
            borders.add(border)
    ordered = sorted(borders)
    ratios = [divmod(after, before) for before, after in itertools.pairwise(ordered)]
    if any(rest for _, rest in ratios):
        return None
    return tuple(ratio for ratio, _ in ratios)


def cuts_of(piece: Piece, pieces: Axis, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """The part of a common cut that falls on one piece of a group."""
    before = size_of(pieces[: pieces.index(piece)])
    border, falling = 1, []
    for cut in cuts:
        if before <= border < before * piece.size:
            falling.append(cut)
        border *= cut
    return tuple(falling)


def split_piece(piece: Piece, sizes: Sequence[int]) -> Axis:
    """Cut one piece into several; a single part is the piece itself."""
    if len(sizes) <= 1:
        return (piece,)
    sorts = parts_of(piece.sort, len(sizes))
    return tuple(Piece(size, sort) for size, sort in zip(sizes, sorts, strict=True))


def with_axis(axes: tuple[Axis, ...], position: int, axis: Axis) -> tuple[Axis, ...]:
    """The axes with one exchanged."""
    return (*axes[:position], axis, *axes[position + 1 :])


def with_thin_piece(value: ArrayView, axis: int) -> ArrayView:
    """A value with a piece on an axis of size 1, which may be put anywhere in its array."""
    piece = Piece(1, GENERIC)
    axes = with_axis(value.axes, axis, (piece,))
    return replace(value, stored=(*value.stored, piece), axes=axes)


def rows_along(value: ArrayView, axis: int, span: tuple[int, int]) -> ArrayView | None:
    """Part of an axis as rows, or None if the axis is not the first thing the array stores."""
    thick = [piece for piece in value.stored if piece.size > 1]
    pieces = [piece for piece in value.axes[axis] if piece.size > 1]
    if len(pieces) != 1 or not thick or thick[0] is not pieces[0]:
        return None
    start, stop = span
    unit = size_of(thick[1:])
    if unit % value.row_entries:
        return None
    rows_per_position = unit // value.row_entries
    first = value.rows[0] if value.rows else 0
    rows = (first + start * rows_per_position, first + stop * rows_per_position)
    new = Piece(stop - start, pieces[0].sort)
    stored = tuple(new if piece is pieces[0] else piece for piece in value.stored)
    return replace(value, rows=rows, stored=stored, axes=with_axis(value.axes, axis, (new,)))
