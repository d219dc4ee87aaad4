"""Norms of gradients over the number of layers that they passed."""

from collections.abc import Sequence
from typing import Any

from rankscope.experiments.experiment import Row

_PREFIX = "gradient after "


# Matplotlib's classes can only be named where it is imported; hence Any.
def draw_gradients(rows: Sequence[Row]) -> Any:
    """A figure of rows of `OrthogonalityEntry`; those without gradients are left out."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for row in rows:
        ratios = {
            int(column.removeprefix(_PREFIX)): value
            for column, value in row.items()
            if column.startswith(_PREFIX) and isinstance(value, float)
        }
        if ratios:
            axes.plot([*ratios], [*ratios.values()], marker="o", label=str(row["layer"]))
    axes.set_yscale("log")
    axes.set_xlabel("convolutions that a gradient passed")
    axes.set_ylabel("its norm, over that before")
    figure.legend(loc="outside right upper")
    return figure
