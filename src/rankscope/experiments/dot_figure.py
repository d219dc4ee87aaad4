"""A figure of finished rows that have no order: a line for each setting, its values along it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.experiments.experiment import Row

_WIDTH, _LINE, _AXIS = 6.4, 0.28, 0.9  # inches


@dataclass(frozen=True)
class DotFigure:
    """Draws some columns of every setting; seeds as small dots, their mean as a large one.

    Args:
        columns: what is drawn, each in its colour.
        is_logarithmic: whether the horizontal axis is.
    """

    columns: tuple[str, ...]
    is_logarithmic: bool = False

    def __call__(self, rows: Sequence[Row]) -> object:
        """A `matplotlib.figure.Figure`."""
        from matplotlib.figure import Figure

        settings = list(dict.fromkeys(str(row["setting"]) for row in rows))
        size = (_WIDTH, _LINE * len(settings) + _AXIS)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        for number, column in enumerate(self.columns):
            points = self.points(rows, column)
            places = [settings.index(setting) for setting, values in points.items() for _ in values]
            values = [value for held in points.values() for value in held]
            axes.plot(values, places, ".", color=f"C{number}", markersize=3)
            axes.plot(
                [statistics.fmean(held) for held in points.values()],
                [settings.index(setting) for setting in points],
                "o",
                color=f"C{number}",
                markersize=5,
                label=column,
            )
        axes.set_yticks(range(len(settings)), settings, fontsize="small")
        axes.invert_yaxis()  # the first setting on top
        axes.grid(axis="y", linewidth=0.3)
        if self.is_logarithmic:
            axes.set_xscale("log")
        if len(self.columns) == 1:
            axes.set_xlabel(self.columns[0])
        else:
            figure.legend(loc="outside lower center", ncols=len(self.columns), fontsize="small")
        return figure

    def points(self, rows: Sequence[Row], column: str) -> dict[str, list[float]]:
        """The values of a column by setting; settings without one are left out."""
        found: dict[str, list[float]] = {}
        for row in rows:
            value = row.get(column)
            if isinstance(value, int | float):
                found.setdefault(str(row["setting"]), []).append(float(value))
        return found
