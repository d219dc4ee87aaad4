"""Figures of finished rows: one quantity against another, or values along a line per setting."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope.lab.experiments.experiment import Row

# A figure of finished rows: one quantity against another, a line for each group.


_SIZE = (6.4, 4.2)


@dataclass(frozen=True)
class LineFigure:
    """Draws the rows that have both quantities; seeds as small dots, their means joined by lines.

    Args:
        across: column of the horizontal axis.
        up: column of the vertical axis.
        group: column that tells the lines apart, or several that do so together.
        is_logarithmic: whether the horizontal axis is.
        is_joined: whether the means of a group are joined by a line.
    """

    across: str
    up: str
    group: str | tuple[str, ...]
    is_logarithmic: bool = True
    is_joined: bool = True

    def __call__(self, rows: Sequence[Row]) -> object:
        """A `matplotlib.figure.Figure`."""
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator, NullFormatter

        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        for number, (name, points) in enumerate(self.groups(rows).items()):
            colour = f"C{number % 10}"
            places, values = zip(*points, strict=True)
            axes.plot(places, values, ".", color=colour, markersize=3)
            means = _means(points)
            axes.plot(
                [place for place, _ in means],
                [value for _, value in means],
                "o-" if self.is_joined else "o",
                color=colour,
                markersize=5,
                label=name,
            )
        if self.is_logarithmic:
            axes.set_xscale("log")
            # Numbers as people write them, near enough to each other for less than a decade.
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:,g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(self.across)
        axes.set_ylabel(self.up)
        axes.legend(fontsize="small")
        return figure

    def groups(self, rows: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
        """The points of every group, in the order of the rows."""
        results: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            place, value = row.get(self.across), row.get(self.up)
            if isinstance(place, int | float) and isinstance(value, int | float):
                results.setdefault(self._name(row), []).append((float(place), float(value)))
        return results

    def _name(self, row: Row) -> str:
        if isinstance(self.group, str):
            return f"{self.group} {row.get(self.group)}"
        return ", ".join(str(row.get(column)) for column in self.group)


def _means(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    places = sorted({place for place, _ in points})
    return [
        (place, statistics.fmean(value for other, value in points if other == place))
        for place in places
    ]


# A figure of finished rows that have no order: a line for each setting, its values along it.


_WIDTH, _LINE, _AXIS = 6.4, 0.28, 0.9  # inches
_Points = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class DotFigure:
    """Draws some columns of every setting; seeds as small dots, their mean as a large one.

    Args:
        columns: what is drawn, each in its colour.
        is_logarithmic: whether the horizontal axis is.
        has_panels: whether every column has a panel of its own, with the settings that have it:
            for columns of different units.
    """

    columns: tuple[str, ...]
    is_logarithmic: bool = False
    has_panels: bool = False

    def __call__(self, rows: Sequence[Row]) -> object:
        """A `matplotlib.figure.Figure`."""
        from matplotlib.figure import Figure

        drawn = {column: self.points(rows, column) for column in self.columns}
        every = list(dict.fromkeys(str(row["setting"]) for row in rows))
        panels = [{column: points} for column, points in drawn.items() if points]
        panels = panels if self.has_panels and panels else [drawn]
        settings = [
            [name for name in every if any(name in points for points in panel.values())]
            if self.has_panels
            else every
            for panel in panels
        ]
        heights = [_LINE * len(names) + _AXIS for names in settings]
        figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
        result = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
        for axes, panel, names in zip(result, panels, settings, strict=True):
            self._draw(axes, panel, names)
        if len(panels[0]) > 1:
            figure.legend(loc="outside lower center", ncols=len(self.columns), fontsize="small")
        return figure

    def points(self, rows: Sequence[Row], column: str) -> dict[str, list[float]]:
        """The values of a column by setting; settings without one are left out."""
        results: dict[str, list[float]] = {}
        for row in rows:
            value = row.get(column)
            if isinstance(value, int | float):
                results.setdefault(str(row["setting"]), []).append(float(value))
        return results

    def _draw(self, axes: Any, panel: Mapping[str, _Points], settings: Sequence[str]) -> None:
        for column, points in panel.items():
            colour = f"C{self.columns.index(column)}"
            places = [settings.index(setting) for setting, values in points.items() for _ in values]
            values = [value for held in points.values() for value in held]
            axes.plot(values, places, ".", color=colour, markersize=3)
            means = [statistics.fmean(held) for held in points.values()]
            places = [settings.index(setting) for setting in points]
            axes.plot(means, places, "o", color=colour, markersize=5, label=column)
        axes.set_yticks(range(len(settings)), settings, fontsize="small")
        axes.invert_yaxis()  # the first setting on top
        axes.grid(axis="y", linewidth=0.3)
        if self.is_logarithmic:
            axes.set_xscale("log")
        if len(panel) == 1:
            (column,) = panel
            axes.set_xlabel(column)
