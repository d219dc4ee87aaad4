"""Figures of finished rows: one quantity against another, or values along a line per setting."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rankscope.lab.experiments.experiment import Row
from rankscope.lab.experiments.table import Interval

# A figure of finished rows: one quantity against another, a line for each group.


_SIZE = (6.4, 4.2)
# The colours of the project's diagrams, in an order in which neighbours differ.
COLOURS = ("#1E40AF", "#C2410C", "#0F766E", "#A21C5B", "#7E22CE", "#334155", "#B45309", "#0369A1")
_MUTED = "#5B6B82"
_LABEL_WIDTH, _LABEL_HEIGHT = 60.0, 10.0  # points that a name beside a line takes
_UNITS = {
    "test loss": "test loss (nats)",
    "bits": "bits per intensity",
    "accuracy": "accuracy (percent)",
    "test accuracy": "test accuracy (percent)",
    "train accuracy": "train accuracy (percent)",
    "in blocks": "weights in the matrices of all blocks",
    "share": "share of the weights kept",
    "noise": "share of random labels",
    "samples": "samples processed",
    "entanglement entropy": "entanglement entropy (nats)",
}


def named(column: str) -> str:
    """The name of an axis, with its unit."""
    return _UNITS.get(column, column)


def colour(number: int) -> str:
    """The colour of a line, by its number."""
    return COLOURS[number % len(COLOURS)]


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
        ends = []
        for number, (name, points) in enumerate(self.groups(rows).items()):
            places, values = zip(*points, strict=True)
            axes.plot(places, values, ".", color=colour(number), markersize=3)
            means = _means(points)
            axes.plot(
                [place for place, _ in means],
                [value for _, value in means],
                "o-" if self.is_joined else "o",
                color=colour(number),
                markersize=5,
                label=name,
            )
            _draw_intervals(axes, points, colour(number))
            ends.append((*means[-1], name, colour(number)))
        draw_baselines(axes, rows, self.up, is_level=True)
        self._draw_published(axes, rows)
        if self.is_logarithmic:
            axes.set_xscale("log")
            # Numbers as people write them, near enough to each other for less than a decade.
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:,g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(named(self.across))
        axes.set_ylabel(named(self.up))
        _label_ends(axes, ends)
        return figure

    def _draw_published(self, axes: Any, rows: Sequence[Row]) -> None:
        """The source's numbers as crosses in the colours of their lines."""
        names = list(self.groups(rows))
        for row in rows:
            place, value = row.get(self.across), row.get("published")
            if isinstance(place, int | float) and isinstance(value, int | float):
                shown = colour(names.index(self._name(row)))
                axes.plot([place], [value], "x", color=shown, markersize=6)

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
            value = row.get(self.group)
            # A number needs the name of what it counts; a word says it itself.
            return value if isinstance(value, str) else f"{self.group} {value}"
        return ", ".join(str(row.get(column)) for column in self.group)


def _draw_intervals(axes: Any, points: Sequence[tuple[float, float]], shown: str) -> None:
    """The 95 % interval of every mean of several seeds."""
    for place in sorted({place for place, _ in points}):
        values = [value for other, value in points if other == place]
        if len(values) > 1:
            interval = Interval.of(values, seeds=len(values))
            low, high = (interval.mean + sign * interval.half_width for sign in (-1, 1))
            axes.vlines(place, low, high, color=shown, linewidth=1.0, alpha=0.6)


def _label_ends(axes: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write the name of every line beside its last point, none over another."""
    axes.margins(x=0.15)
    axes.autoscale_view()  # so that places on the page are known
    points = 72 / axes.figure.dpi
    taken: list[tuple[float, float]] = []
    for place, value, name, shown in sorted(ends, key=lambda end: end[1]):
        across, up = (points * pixel for pixel in axes.transData.transform((place, value)))
        wanted = up
        for other, height in sorted(taken, key=lambda one: one[1]):
            if abs(other - across) < _LABEL_WIDTH and abs(height - wanted) < _LABEL_HEIGHT:
                wanted = height + _LABEL_HEIGHT
        taken.append((across, wanted))
        axes.annotate(
            name,
            (place, value),
            xytext=(8, wanted - up),
            textcoords="offset points",
            color=shown,
            fontsize="small",
            va="center",
        )


def draw_baselines(axes: Any, rows: Sequence[Row], column: str, *, is_level: bool) -> None:
    """A dotted line with its name for every baseline that has a column, at the mean of its seeds.

    Args:
        axes: where.
        rows: all of them.
        column: that is drawn.
        is_level: whether the column is drawn upwards, so that the line is level.
    """
    values: dict[str, list[float]] = {}
    for row in rows:
        number, name = row.get(column), row.get("baseline")
        if name is not None and isinstance(number, int | float):
            values.setdefault(str(name), []).append(float(number))
    for name, held in values.items():
        value = statistics.fmean(held)
        (axes.axhline if is_level else axes.axvline)(
            value, color=_MUTED, linestyle=":", linewidth=1.0
        )
        at = (0.01, value) if is_level else (value, 0.99)
        axes.annotate(
            name,
            at,
            xycoords=axes.get_yaxis_transform() if is_level else axes.get_xaxis_transform(),
            color=_MUTED,
            fontsize="x-small",
            va="bottom" if is_level else "top",
            rotation=0 if is_level else 90,
        )


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
            for column in panel:
                draw_baselines(axes, rows, column, is_level=False)
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
            shown = colour(self.columns.index(column))
            places = [settings.index(setting) for setting, values in points.items() for _ in values]
            values = [value for held in points.values() for value in held]
            axes.plot(values, places, ".", color=shown, markersize=3)
            means = [statistics.fmean(held) for held in points.values()]
            places = [settings.index(setting) for setting in points]
            axes.plot(means, places, "o", color=shown, markersize=5, label=named(column))
        axes.set_yticks(range(len(settings)), settings, fontsize="small")
        axes.invert_yaxis()  # the first setting on top
        axes.grid(axis="y", linewidth=0.3)
        if self.is_logarithmic:
            axes.set_xscale("log")
        if len(panel) == 1:
            (column,) = panel
            axes.set_xlabel(named(column))
