"""The table of layers: every tensor has a row with numbers, or one with the reason why not."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from rankscope.auditing.tensors import MatrixRow, TensorRow
from rankscope.report.heat_map import NUMBERED, shares
from rankscope.report.sparkline import sparkline
from rankscope.report.wording import PART_NAMES, breakable, readable, shape_text


@dataclass(frozen=True)
class Column:
    """A heading, what it means, and whether it stays in a narrow window."""

    title: str
    meaning: str
    is_narrow: bool = False
    is_number: bool = True


COLUMNS = (
    Column("Tensor", "Name in the file", is_narrow=True, is_number=False),
    Column("Part", "Part of the model", is_number=False),
    Column("Shape", "Sorted by the number of entries"),
    Column("Largest", "Largest singular value"),
    Column("Stable", "Stable rank: sum of squares over the largest square"),
    Column("Effective", "Effective rank: exponential of the entropy of the squares' shares"),
    Column("Of full", "Effective rank over the number of singular values", is_narrow=True),
    Column("90 %", "Singular values that hold 90 % of the squares"),
    Column("Outliers", "Singular values above the edge of a random matrix of this shape"),
    Column("Not random", "Distance from the spectrum of a random matrix, 0 to 1"),
)


def layer_table(tensors: tuple[TensorRow, ...]) -> str:
    """The whole table, sorted as the file is; "" without tensors."""
    if not tensors:
        return ""
    head = "".join(_heading(place, column) for place, column in enumerate(COLUMNS))
    rows = "\n".join(
        _row(place, number, row)
        for place, row in enumerate(tensors)
        for number in shown_matrices(row)
    )
    return (
        f'<table class="layers">\n<thead><tr>{head}<th scope="col">Spectrum</th></tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table>"
    )


def shown_matrices(row: TensorRow) -> tuple[int | None, ...]:
    """Which matrices of a tensor have rows of their own: those that are not numbered.

    Heads and experts stand in the panel that a row opens; None is the row of a tensor without a
    spectrum.
    """
    if not row.matrices:
        return (None,)
    named = tuple(
        number for number, matrix in enumerate(row.matrices) if not NUMBERED.match(matrix.name)
    )
    return named or (0,)


def _heading(place: int, column: Column) -> str:
    return (
        f'<th scope="col" class="{_classes(column)}" aria-sort="none"><button type="button" '
        f'data-column="{place}" title="{escape(column.meaning)}">{column.title}</button></th>'
    )


def _classes(column: Column) -> str:
    return ("number" if column.is_number else "word") + (" narrow" if column.is_narrow else "")


def _row(place: int, number: int | None, row: TensorRow) -> str:
    name = breakable(row.name)
    if number is None:
        cells = [*_words(name, row), _shape(row.shape), f'<td colspan="8">{_reason(row)}</td>']
        return f'<tr data-tensor="{place}">{"".join(cells)}</tr>'
    matrix = row.matrices[number]
    part = f' <span class="view">{escape(matrix.name)}</span>' if matrix.name else ""
    title = f'<button type="button" class="open" aria-expanded="false">{name}{part}</button>'
    more = len(row.matrices) - len(shown_matrices(row))
    note = _note(row, more if number == shown_matrices(row)[0] else 0)
    cells = [*_words(title + note, row), _shape(matrix.shape), *_numbers(matrix)]
    spark = f'<td class="picture">{sparkline(matrix.singular_values)}</td>'
    return f'<tr data-tensor="{place}" data-matrix="{number}">{"".join(cells)}{spark}</tr>'


def _words(title: str, row: TensorRow) -> Iterator[str]:
    yield f'<td class="word narrow" data-value="{escape(row.name)}">{title}</td>'
    yield f'<td class="word">{PART_NAMES.get(row.part, escape(row.part))}</td>'


def _shape(shape: tuple[int, ...]) -> str:
    return f'<td class="number" data-value="{math.prod(shape)}">{shape_text(shape)}</td>'


def _numbers(matrix: MatrixRow) -> Iterator[str]:
    share = shares(matrix)["effective"]
    yield _number(matrix.largest)
    yield _number(matrix.stable_rank)
    yield _number(matrix.effective_rank)
    yield (
        f'<td class="number share narrow" data-value="{share}" style="--share:{share:.3f}">'
        f"{100 * share:.0f} %</td>"
    )
    yield _number(matrix.rank_at.get("90", math.nan))
    yield _number(matrix.outliers)
    yield _number(matrix.random_distance)


def _number(value: float | int) -> str:
    if not math.isfinite(value):
        return '<td class="number">–</td>'
    return f'<td class="number" data-value="{value}">{readable(value)}</td>'


def _note(row: TensorRow, more: int) -> str:
    notes = []
    if row.same_as is not None:
        notes.append(f"same as {escape(row.same_as)}")
    if more:
        notes.append(f"and {more} more")
    return f'<span class="aside">{"; ".join(notes)}</span>' if notes else ""


def _reason(row: TensorRow) -> str:
    found = [f"same as {row.same_as}"] if row.same_as is not None else []
    if row.reason is not None:
        found.append(row.reason)
    return escape("; ".join(found) or "no spectrum, no reason given")
