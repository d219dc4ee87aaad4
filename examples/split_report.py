"""What splits of models say, as a table, as JSON and as a picture."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours that all eyes tell apart; splits of the same kind have the same one.
_COLOURS = {
    "left-right": "#0072b2",
    "start-end": "#0072b2",
    "top-bottom": "#56b4e9",
    "checkerboard": "#d55e00",
    "interleaved": "#d55e00",
    "random": "#009e73",
}
_STYLES = {"trained": "-", "untrained": ":"}
_LEAST = 1e-6  # below lies the rounding of float32


@dataclass(frozen=True)
class Row:
    """One split of one model.

    Args:
        model: its name.
        weights: trained or untrained.
        partition: the name of the split.
        samples: how many left halves, and right halves.
        numeric_rank: singular values above `tolerance`, a share of the largest.
        entropy: of entanglement, in nats.
        rank_within_tenth: the least rank within 10 % of the root mean square, on the sample.
        rank_within_hundredth: the same within 1 %.
        entropy_curve: pairs of a number of samples and the entropy on these alone.
        singular_values: as shares of the root of the sum of their squares.
    """

    model: str
    weights: str
    partition: str
    samples: int
    numeric_rank: int
    tolerance: float
    entropy: float
    rank_within_tenth: int
    rank_within_hundredth: int
    entropy_curve: list[list[float]]
    singular_values: list[float]


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """As JSON, one row to a line."""
    lines = ",\n".join(json.dumps(asdict(row)) for row in rows)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def read_rows(path: Path) -> list[Row]:
    """What `write_rows` wrote."""
    return [Row(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown lines, one for each split: trained / untrained."""
    lines = [
        "| model | split | numeric rank | entropy (nats) | rank within 10 % | rank within 1 % |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for model, partition in dict.fromkeys((row.model, row.partition) for row in rows):
        group = [row for row in rows if (row.model, row.partition) == (model, partition)]
        cells = [
            [str(row.numeric_rank) for row in group],
            [f"{row.entropy:.2f}" for row in group],
            [str(row.rank_within_tenth) for row in group],
            [str(row.rank_within_hundredth) for row in group],
        ]
        written = " | ".join(" / ".join(cell) for cell in cells)
        lines.append(f"| {model} | {partition} | {written} |")
    return lines


def draw(rows: Sequence[Row], path: Path) -> None:
    """Spectra above, entropies of growing samples below; one column for each model."""
    models = list(dict.fromkeys(row.model for row in rows))
    # A fixed salt makes the same picture the same file; text stays text.
    with mpl.rc_context({"svg.hashsalt": "rankscope", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(5.0 * len(models), 7.0), layout="constrained")
        panels = figure.subplots(2, len(models), sharey="row", squeeze=False)
        for upper, lower, model in zip(*panels, models, strict=True):
            _draw_spectra(upper, [row for row in rows if row.model == model])
            _draw_entropies(lower, [row for row in rows if row.model == model])
        panels[0, 0].set_ylabel("normalized singular value")
        panels[1, 0].set_ylabel("entanglement entropy (nats)")
        figure.suptitle("A logit, split in two: trained (solid) and untrained (dotted)")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def _draw_spectra(panel: Axes, rows: Sequence[Row]) -> None:
    for row in rows:
        _draw_line(panel, row, range(1, len(row.singular_values) + 1), row.singular_values)
    panel.set_yscale("log")
    panel.set_ylim(_LEAST, 1.3)
    panel.set_title(f"{rows[0].model}, {rows[0].samples} x {rows[0].samples} halves")
    panel.set_xlabel("number of the singular value")
    panel.legend(frameon=False, loc="lower left")


def _draw_entropies(panel: Axes, rows: Sequence[Row]) -> None:
    for row in rows:
        samples, entropies = zip(*row.entropy_curve, strict=True)
        _draw_line(panel, row, samples, entropies)
    panel.set_ylim(bottom=0)
    panel.set_xlabel("left halves, and right halves, in the sample")


def _draw_line(panel: Axes, row: Row, across: Sequence[float], up: Sequence[float]) -> None:
    label = row.partition if row.weights == "trained" else None
    panel.plot(
        across, up, _STYLES[row.weights], color=_COLOURS[row.partition], label=label, linewidth=1.6
    )
    panel.set_xlim(left=1)
    panel.grid(visible=True, color="#dddddd", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)
