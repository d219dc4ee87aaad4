"""A figure of finished rows: one quantity against another, a line for each group."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.experiments.experiment import Row

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
        found: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            place, value = row.get(self.across), row.get(self.up)
            if isinstance(place, int | float) and isinstance(value, int | float):
                found.setdefault(self._name(row), []).append((float(place), float(value)))
        return found

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
