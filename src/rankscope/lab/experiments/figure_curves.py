"""A figure of curves: lists of numbers, as of the epochs of a training."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankscope.lab.experiments.experiment import Row
from rankscope.lab.experiments.figure_names import Names, place_names
from rankscope.lab.experiments.figure_parts import (
    PUBLISHED,
    SEED_LINE,
    Mark,
    NamedRows,
    Panel,
    Point,
    by_panel,
    colour,
    explain_marks,
    in_order,
    levels_of,
    means_of,
    names_above,
    number_of,
    panel_grid,
    write_title,
)
from rankscope.lab.experiments.wording import Labels, worded


@dataclass(frozen=True)
class CurveFigure:
    """Draws lists of numbers; every seed as a thin line, their mean as a thick one.

    Args:
        columns: of lists; if there are several, they tell the lines apart, else the panels'
            expressions do.
        across: column of the list of places; places are counted from 1 if it is empty.
        names: of both axes.
        start: column of a number that every list begins with at place 0.
        is_logarithmic: whether the vertical axis is.
        panels: which settings are drawn beside each other.
        labels: names of columns, lines and baselines in words.
        level: column of baselines that are drawn as level lines.
        published: column of the source's number, a cross at the end of its line.
        shares_axis: whether all panels have one vertical axis.
    """

    columns: tuple[str, ...]
    names: tuple[str, str]
    across: str = ""
    start: str = ""
    is_logarithmic: bool = False
    panels: tuple[Panel, ...] = (Panel(),)
    labels: Labels = field(default_factory=dict)
    level: str = ""
    published: str = ""
    shares_axis: bool = True

    def __call__(self, rows: Sequence[Row]) -> object:
        """A `matplotlib.figure.Figure`."""
        panels = [
            (panel, named, curves)
            for panel, named in by_panel(self.panels, rows, is_split=len(self.columns) > 1)
            if (curves := self._curves(named))
        ]
        figure, grid = panel_grid(len(panels), shares_up=self.shares_axis, shares_across=False)
        every = in_order((name for _, _, curves in panels for name in curves), self.labels)
        repeated = names_above(every, [curves for _, _, curves in panels])
        written = []
        for axes, (panel, named, curves) in zip(grid, panels, strict=False):
            names = Names(axes)
            if self.is_logarithmic:
                axes.set_yscale("log")
            for name, seeds in curves.items():
                mean = self._draw(axes, seeds, colour(every.index(name)))
                if name not in repeated and name:
                    shown = colour(every.index(name))
                    names.ends.append((worded(name, self.labels), shown, mean))
            values = [value for seeds in curves.values() for seed in seeds for _, value in seed]
            if self.level:
                levels = levels_of(panel, rows, panel.up or self.level, self.labels)
                names.draw_levels(levels, values, is_logarithmic=self.is_logarithmic)
            self._draw_published(axes, named, curves, every)
            axes.margins(x=0.03)
            write_title(axes, panel.title)
            axes.set_xlabel(self.names[0])
            if not self.across:
                axes.xaxis.get_major_locator().set_params(integer=True)
            if axes.get_subplotspec().is_first_col():
                axes.set_ylabel(self.names[1])
            written.append(names)
        explain_marks(figure, self._marks(panels, every, repeated))
        place_names(figure, written)
        return figure

    def _curves(self, named: NamedRows) -> dict[str, list[list[Point]]]:
        """The points of every seed of every line."""
        results: dict[str, list[list[Point]]] = {}
        for column in self.columns:
            for name, row in named:
                points = list(self._points(row, column))
                if points:
                    line = column if len(self.columns) > 1 else name
                    results.setdefault(line, []).append(points)
        return results

    def _points(self, row: Row, column: str) -> Iterator[Point]:
        values, places = row.get(column), row.get(self.across)
        if not isinstance(values, list):
            return
        if not isinstance(places, list):
            places = [float(number) for number in range(1, len(values) + 1)]
        first = number_of(row.get(self.start))
        if first is not None:
            values, places = [first, *values], [0.0, *places]
        for place, value in zip(places, values, strict=False):
            if value > 0 or not self.is_logarithmic:  # zero has no place on such an axis
                yield float(place), float(value)

    def _draw(self, axes: Any, seeds: Sequence[Sequence[Point]], shown: str) -> list[Point]:
        """Draw the seeds and their mean, which is returned."""
        for points in seeds if len(seeds) > 1 else ():
            axes.plot(*zip(*points, strict=True), color=shown, linewidth=0.6, alpha=0.45)
        mean = means_of([point for points in seeds for point in points])
        axes.plot(*zip(*mean, strict=True), color=shown, linewidth=1.6)
        return mean

    def _draw_published(
        self, axes: Any, named: NamedRows, curves: Mapping[str, Sequence[Sequence[Point]]],
        every: Sequence[str],
    ) -> None:  # fmt: skip
        for name, row in named:
            value = number_of(row.get(self.published))
            if value is not None and name in curves:
                end = max(place for points in curves[name] for place, _ in points)
                shown = colour(every.index(name))
                axes.plot([end], [value], "x", color=shown, markersize=6, markeredgewidth=1.5)

    def _marks(
        self,
        panels: Sequence[tuple[Panel, NamedRows, Mapping[str, Sequence[Sequence[Point]]]]],
        every: Sequence[str],
        repeated: set[str],
    ) -> list[Mark]:
        marks = [
            Mark(worded(name, self.labels), colour(number), marker="")
            for number, name in enumerate(every)
            if name in repeated and name
        ]
        if self.published and any(
            row.get(self.published) is not None for _, named, _ in panels for _, row in named
        ):
            marks.append(PUBLISHED)
        if any(len(seeds) > 1 for _, _, curves in panels for seeds in curves.values()):
            marks.append(SEED_LINE)
        return marks
