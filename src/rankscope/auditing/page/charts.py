"""Charts of the audit page: heat map, spectra, the depth-width plane."""

import math
import re
from dataclasses import dataclass
from html import escape

from rankscope.auditing.page.text import breakable
from rankscope.auditing.tensors import MatrixRow, TensorRow

# --- Layers against kinds of matrices: how far each is below its largest possible rank ------------


# Heads and experts, which share a row.
NUMBERED = re.compile(r"(head|expert) \d+")
# Whole numbers between dots: blocks, experts, and the like.
COUNTED = re.compile(r"(?<![^.])\d+(?![^.])")
# More columns than this leave no space for a number in a cell.
MOST_NUMBERED = 16


@dataclass(frozen=True)
class Cell:
    """The matrix that a cell stands for: of several, that with the lowest share."""

    tensor: int
    matrix: int
    name: str
    shares: dict[str, float]
    count: int = 1


@dataclass(frozen=True)
class HeatMap:
    """Cells by kind and column; `counts_blocks` is False if columns are tensors in their order."""

    columns: tuple[str, ...]
    kinds: dict[str, dict[str, Cell]]
    counts_blocks: bool


def shares(matrix: MatrixRow) -> dict[str, float]:
    """Ranks over the largest possible one: effective, stable, and at 90 % of the squares."""
    largest = max(matrix.num_values, 1)
    return {
        "effective": matrix.effective_rank / largest,
        "stable": matrix.stable_rank / largest,
        "energy": matrix.rank_at.get("90", 0) / largest,
    }


def arrange(tensors: tuple[TensorRow, ...]) -> HeatMap:
    """Sort matrices by kind and block; without blocks the tensors stand in their order."""
    seen = [(place, row) for place, row in enumerate(tensors) if row.matrices]
    layers = sorted({row.layer for _, row in seen if row.layer is not None})
    if layers:
        columns = tuple(str(layer) for layer in layers)
        seen = [(place, row) for place, row in seen if row.layer is not None]
    else:
        columns = tuple(row.name for _, row in seen)
    kinds: dict[str, dict[str, Cell]] = {}
    for place, row in seen:
        column = row.name if row.layer is None else str(row.layer)
        for number, matrix in enumerate(row.matrices):
            kind = _kind(row, matrix) if layers else _view(matrix) or "weight"
            cell = Cell(place, number, _full_name(row, matrix), shares(matrix))
            cells = kinds.setdefault(kind, {})
            cells[column] = _lower(cells.get(column), cell)
    return HeatMap(columns, _shorten_names(kinds), bool(layers))


def heat_map(tensors: tuple[TensorRow, ...]) -> str:
    """A table of buttons; "" if no tensor has a spectrum."""
    grid = arrange(tensors)
    if not grid.kinds:
        return ""
    numbered = " numbered" if len(grid.columns) <= MOST_NUMBERED else ""
    head = "".join(_heading(place, column, grid) for place, column in enumerate(grid.columns))
    first = True
    lines = []
    for kind, cells in grid.kinds.items():
        row = []
        for column in grid.columns:
            cell = cells.get(column)
            row.append("<td></td>" if cell is None else _button(cell, is_first=first))
            first = first and cell is None
        lines.append(f'<tr><th scope="row">{breakable(kind)}</th>{"".join(row)}</tr>')
    corner = "block" if grid.counts_blocks else "tensor, in the order of the file"
    body = "\n".join(lines)
    return (
        '<div class="scroll">'
        f'<table class="heat{numbered}" style="--columns:{len(grid.columns)}">\n'
        f'<thead><tr><th scope="col">{corner}</th>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _kind(row: TensorRow, matrix: MatrixRow) -> str:
    words = row.name.split(".")
    # The column says which block it is, so the name need not.
    if str(row.layer) in words:
        words.remove(str(row.layer))
    name = COUNTED.sub("*", ".".join(words))
    return f"{name}: {_view(matrix)}" if matrix.name else name


def _view(matrix: MatrixRow) -> str:
    """What is seen, without its number and without the image that an operator acts on."""
    return NUMBERED.sub(r"\1 *", matrix.name).split(" on ")[0]


def _full_name(row: TensorRow, matrix: MatrixRow) -> str:
    return f"{row.name}, {matrix.name}" if matrix.name else row.name


def _lower(old: Cell | None, new: Cell) -> Cell:
    if old is None:
        return new
    best = min(old, new, key=lambda cell: cell.shares["effective"])
    return Cell(best.tensor, best.matrix, best.name, best.shares, old.count + 1)


def _shorten_names(kinds: dict[str, dict[str, Cell]]) -> dict[str, dict[str, Cell]]:
    """Drop the first words that all names share, and an ending that says nothing."""
    split = [kind.split(".") for kind in kinds]
    common = 0
    while all(len(words) > common + 1 for words in split) and (
        len({words[common] for words in split}) == 1
    ):
        common += 1
    names = [".".join(words[common:]).replace(".weight", "") for words in split]
    if len(set(names)) < len(names):
        names = list(kinds)
    return dict(zip(names, kinds.values(), strict=True))


def _heading(place: int, column: str, grid: HeatMap) -> str:
    if grid.counts_blocks:
        return f'<th scope="col">{escape(column)}</th>'
    return f'<th scope="col"><abbr title="{escape(column)}">{place + 1}</abbr></th>'


def _button(cell: Cell, *, is_first: bool) -> str:
    several = f" (lowest of {cell.count})" if cell.count > 1 else ""
    data = " ".join(f'data-{metric}="{share:.4f}"' for metric, share in cell.shares.items())
    # One cell can be tabbed to; the arrow keys do the rest.
    place = f'data-tensor="{cell.tensor}" data-matrix="{cell.matrix}"'
    name = escape(f"{cell.name}{several}")
    share = cell.shares["effective"]
    return (
        f'<td><button type="button" {place} {data} data-name="{name}" '
        f'style="--share:{share:.3f}" tabindex="{0 if is_first else -1}" '
        f'title="{name}: {share:.0%}">{100 * share:.0f}</button></td>'
    )


# --- A spectrum the size of a word ----------------------------------------------------------------


WIDTH, HEIGHT = 88, 20
NUM_POINTS = 33
# Decades below the largest value; the same for every row, so that rows can be compared.
DECADES = 2


def sparkline(singular_values: tuple[float, ...]) -> str:
    """An SVG of values over the largest on a logarithmic scale; "" where there is nothing."""
    if not singular_values or not 0 < singular_values[0] < math.inf:
        return ""
    last = len(singular_values) - 1
    num_points = min(NUM_POINTS, last + 1)
    points = []
    for point in range(num_points):
        share = point / max(num_points - 1, 1)
        value = singular_values[round(share * last)] / singular_values[0]
        depth = min(-math.log10(value), DECADES) if value > 0 else DECADES
        points.append(f"{1 + share * (WIDTH - 2):.0f} {1 + depth / DECADES * (HEIGHT - 2):.1f}")
    line = "M" + "L".join(points if last else points * 2)
    return (
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<path d="{line}"/></svg>'
    )
