"""The layers of the audit page: a row each, with spectrum and diagram."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from rankscope.auditing.auditor import Audit
from rankscope.auditing.configuration import Configuration
from rankscope.auditing.page.charts import NUMBERED, shares, sparkline
from rankscope.auditing.page.text import PART_NAMES, breakable, readable, shape_text, shortened
from rankscope.auditing.tensors import MatrixRow, TensorRow
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.families.attention import grouped_query, multi_head
from rankscope.diagrams.parts import Convolution, Index, IndexKind, Node, Role
from rankscope.errors import MissingExtraError

# --- The table of layers: every tensor has a row with numbers, or one with the reason why not -----


@dataclass(frozen=True)
class Column:
    """A heading, what it means, and whether it stays in a narrow window."""

    title: str
    description: str
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
        f'data-column="{place}" title="{escape(column.description)}">{column.title}</button></th>'
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
    reasons = [f"same as {row.same_as}"] if row.same_as is not None else []
    if row.reason is not None:
        reasons.append(row.reason)
    return escape("; ".join(reasons) or "no spectrum, no reason given")


# --- Tensor diagrams of layers: one for every kind of layer and size that a model has -------------


# Names of an input, kernel and output leg for each direction, and the symbols of input and output.
DIRECTIONS = (
    ("rows", ("h", "u", "y"), ("H", "H'", r"H^{\prime}")),
    ("columns", ("w", "v", "x"), ("W", "W'", r"W^{\prime}")),
    ("slices", ("d", "a", "z"), ("D", "D'", r"D^{\prime}")),
)


@dataclass(frozen=True)
class LayerDiagrams:
    """Pictures by key, the key of each tensor of the audit, and why there are no pictures."""

    keys: tuple[str | None, ...] = ()
    pictures: tuple[tuple[str, str], ...] = ()
    problem: str | None = None


def layer_diagrams(audit: Audit) -> LayerDiagrams:
    """Draw each diagram once; a page without matplotlib says that it has none, and why."""
    wanted = [layer_diagram(row, audit.configuration) for row in audit.tensors]
    different = {diagram: f"diagram{place}" for place, diagram in enumerate(_different(wanted))}
    keys = tuple(None if diagram is None else different[diagram] for diagram in wanted)
    try:
        pictures = tuple((key, _picture(diagram, key)) for diagram, key in different.items())
    except MissingExtraError as error:
        return LayerDiagrams(keys=(None,) * len(keys), problem=str(error))
    return LayerDiagrams(keys, pictures)


def layer_diagram(row: TensorRow, configuration: Configuration | None) -> Diagram | None:
    """What a layer does with a tensor, as a diagram; None for vectors and what has no spectrum."""
    if not row.matrices:
        return None
    is_kernel = len(row.shape) > 2 and row.shape[0] > 1 and not _holds_experts(row)
    if is_kernel:
        return _convolution(row.shape) if len(row.shape) <= 2 + len(DIRECTIONS) else None
    if row.part == "attention" and configuration is not None:
        return _attention(configuration)
    return _embedding(row.shape) if row.part == "embedding" else _linear(row, configuration)


def _holds_experts(row: TensorRow) -> bool:
    return row.matrices[0].name.startswith("expert")


def _different(wanted: list[Diagram | None]) -> dict[Diagram, None]:
    return dict.fromkeys(diagram for diagram in wanted if diagram is not None)


def _picture(diagram: Diagram, key: str) -> str:
    # Imported here: a page about a configuration alone draws nothing, and must be quick.
    from rankscope.drawing.layout.placement import View
    from rankscope.drawing.page import compose
    from rankscope.drawing.svg import to_svg

    return to_svg(compose(diagram, view=View(show_sizes=True)), prefix=f"{key}-")


def _attention(shape: Configuration) -> Diagram:
    if shape.key_value_heads == shape.heads:
        return multi_head(
            num_features=shape.width, num_heads=shape.heads, head_size=shape.head_size
        )
    return grouped_query(
        num_features=shape.width,
        num_heads=shape.heads,
        head_size=shape.head_size,
        num_groups=shape.key_value_heads,
    )


def _linear(row: TensorRow, configuration: Configuration | None) -> Diagram:
    # The tensor may hold several maps side by side, or one map for each expert.
    rows, columns = row.matrices[0].shape if len(row.shape) > 2 else row.shape
    if configuration is not None and configuration.family == "gpt2" and ".c_" in row.name:
        rows, columns = columns, rows  # GPT-2 stores (inputs, outputs)
    return Diagram(
        "linear",
        (
            Index("n", None, "N", IndexKind.SEQUENCE),
            Index("i", columns, "I", IndexKind.FEATURE),
            Index("o", rows, "O", IndexKind.FEATURE),
        ),
        (Node("X", ("n", "i"), Role.DATA), Node("W", ("o", "i"))),
        output=("n", "o"),
        title="Linear map",
    )


def _embedding(shape: tuple[int, ...]) -> Diagram:
    return Diagram(
        "embedding",
        (
            Index("n", None, "N", IndexKind.SEQUENCE),
            Index("v", shape[-2], "V", IndexKind.FEATURE),
            Index("f", shape[-1], "F", IndexKind.FEATURE),
        ),
        (Node("X", ("n", "v"), Role.DATA, is_one_hot=True), Node("E", ("v", "f"))),
        output=("n", "f"),
        title="Embedding",
    )


def _convolution(shape: tuple[int, ...]) -> Diagram:
    directions = DIRECTIONS[: len(shape) - 2]
    indices = [
        Index("s", shape[1], "S", IndexKind.FEATURE),
        Index("t", shape[0], "T", IndexKind.FEATURE),
    ]
    # One symbol says that all directions have one size.
    is_cubic = len(set(shape[2:])) == 1
    for (_, (into, kernel, out), (symbol, after, label)), size in zip(
        directions, shape[2:], strict=True
    ):
        indices += [
            Index(into, None, symbol, IndexKind.SPACE),
            Index(kernel, size, "k" if is_cubic else f"k_{symbol.lower()}", IndexKind.SPACE),
            Index(out, None, after, IndexKind.SPACE, label),
        ]
    legs = [legs for _, legs, _ in directions]
    return Diagram(
        "convolution",
        tuple(indices),
        (
            Node("X", ("s", *(into for into, _, _ in legs)), Role.DATA, r"\mathcal{X}"),
            Node("K", ("t", "s", *(kernel for _, kernel, _ in legs)), label=r"\mathcal{K}"),
        ),
        output=("t", *(out for _, _, out in legs)),
        convolutions=tuple(Convolution(name, *window) for name, window, _ in directions),
        title="Convolution",
    )


# --- What the script of the page knows: every tensor with its spectra, as plain data --------------


NUM_QUANTILES = 64


def layer_data(audit: Audit, diagrams: LayerDiagrams) -> dict[str, object]:
    """Tensors, and the spectrum that chance gives each shape among them."""
    if not audit.tensors:
        return {"tensors": [], "references": {}, "problem": None}
    # Imported here, because it needs numpy: a page about a configuration alone must be quick.
    from rankscope.auditing.spectra import random_quantiles, random_sizes

    def key(matrix: MatrixRow) -> str:
        return "x".join(str(size) for size in random_sizes(matrix))

    references: dict[str, list[float | None]] = {}
    for matrix in (matrix for row in audit.tensors for matrix in row.matrices):
        if key(matrix) not in references:
            quantiles = random_quantiles(random_sizes(matrix), NUM_QUANTILES)
            references[key(matrix)] = shortened(quantiles)
    tensors = [
        _tensor(row, [_matrix(matrix, key(matrix)) for matrix in row.matrices], diagram)
        for row, diagram in zip(audit.tensors, diagrams.keys, strict=True)
    ]
    return {"tensors": tensors, "references": references, "problem": diagrams.problem}


def _tensor(
    row: TensorRow, matrices: list[dict[str, object]], diagram: str | None
) -> dict[str, object]:
    return {**row.to_dict(), "matrices": matrices, "diagram": diagram}


def _matrix(matrix: MatrixRow, reference: str) -> dict[str, object]:
    values = shortened(matrix.singular_values)
    return {**matrix.to_dict(), "singular_values": values, "reference": reference}
