"""Parts of a value: rows of its array, and axes of size 1."""

from dataclasses import replace

from rankscope.diagrams.reading.sorts import GENERIC
from rankscope.diagrams.reading.values import Axis, Piece, Value, size_of


def with_axis(axes: tuple[Axis, ...], position: int, axis: Axis) -> tuple[Axis, ...]:
    """The axes with one exchanged."""
    return (*axes[:position], axis, *axes[position + 1 :])


def with_thin_piece(value: Value, axis: int) -> Value:
    """A value with a piece on an axis of size 1, which may be put anywhere in its array."""
    piece = Piece(1, GENERIC)
    axes = with_axis(value.axes, axis, (piece,))
    return replace(value, stored=(*value.stored, piece), axes=axes)


def rows_along(value: Value, axis: int, span: tuple[int, int]) -> Value | None:
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
