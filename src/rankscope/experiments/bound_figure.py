"""Bounds and the test error over the epochs of training, a panel for each setting."""

from collections.abc import Sequence
from typing import Any

from rankscope.experiments.bound_entry import BOUNDS, TEST_ERROR
from rankscope.experiments.experiment import Row

_PANEL = (4.4, 3.4)


def draw_bounds(rows: Sequence[Row]) -> object:
    """A `matplotlib.figure.Figure`; a line for each seed, on a logarithmic axis."""
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys(str(row["setting"]) for row in rows))
    columns = min(3, len(settings))
    lines = -(-len(settings) // columns)
    figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False)
    for number, panel in enumerate(panels.flat):
        if number >= len(settings):
            panel.set_visible(False)
            continue
        _draw(panel, [row for row in rows if row["setting"] == settings[number]])
        panel.set_title(settings[number], loc="left", fontsize="small")
    marks, names = panels.flat[0].get_legend_handles_labels()
    figure.legend(marks, names, loc="outside lower center", ncols=len(names), fontsize="small")
    return figure


# Matplotlib's classes can only be named where it is imported; hence Any.
def _draw(panel: Any, rows: Sequence[Row]) -> None:
    for number, name in enumerate((TEST_ERROR, *BOUNDS)):
        label: str | None = name
        for row in rows:
            epochs, curve = row["epochs"], row.get(f"{name} curve")
            if isinstance(epochs, list) and isinstance(curve, list):
                # Zero has no place on a logarithmic axis.
                points = [(x, y) for x, y in zip(epochs, curve, strict=True) if y > 0]
                across, up = [x for x, _ in points], [y for _, y in points]
                panel.plot(across, up, color=f"C{number}", linewidth=1.0, label=label)
                label = None
    panel.set_yscale("log")
    panel.set_xlabel("epoch", fontsize="small")
