"""A figure of dots: settings that have no order, a line for each."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankscope.lab.experiments.experiment import Row
from rankscope.lab.experiments.figure_names import place_names
from rankscope.lab.experiments.figure_parts import (
    MUTED,
    PUBLISHED,
    SEED,
    Level,
    Mark,
    NamedRows,
    Panel,
    by_panel,
    colour,
    explain_marks,
    interval_mark,
    interval_of,
    levels_of,
    lines_of,
    near_and_far,
    number_of,
    number_ticks,
    setting_of,
    short,
    write_title,
)
from rankscope.lab.experiments.wording import Labels, worded

_WIDTH, _LINE, _AXIS = 6.4, 0.27, 0.75  # inches
_Points = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class DotFigure:
    """Draws some columns of every setting; seeds as small dots, their mean as a large one.

    Args:
        columns: what is drawn, each in its colour; "published" as crosses. A panel that says what
            is across shows that alone.
        is_logarithmic: whether the horizontal axis is.
        panels: which settings are drawn together; the others follow below.
        labels: names of columns, settings and baselines in words.
        shares_axis: whether all panels have one horizontal axis.
    """

    columns: tuple[str, ...]
    is_logarithmic: bool = False
    panels: tuple[Panel, ...] = (Panel(),)
    labels: Labels = field(default_factory=dict)
    shares_axis: bool = False

    def __call__(self, rows: Sequence[Row]) -> object:
        """A `matplotlib.figure.Figure`."""
        from matplotlib.figure import Figure

        panels = [
            (panel, drawn)
            for panel, named in by_panel(self.panels, rows)
            if (drawn := self._drawn(panel, named))
        ] or [(Panel(), {})]
        near = [self._levels(panel, drawn, rows) for panel, drawn in panels]
        heights = [
            _LINE * (len(_settings(drawn)) + len(levels)) + _AXIS
            for (_, drawn), levels in zip(panels, near, strict=True)
        ]
        figure = Figure(figsize=(_WIDTH, sum(heights) + 0.3), layout="constrained")
        grid = figure.subplots(
            len(panels), squeeze=False, height_ratios=heights, sharex=self.shares_axis
        )[:, 0]
        for axes, (panel, drawn), levels in zip(grid, panels, near, strict=True):
            self._draw(axes, drawn)
            _name_rows(axes, _settings(drawn), levels)
            write_title(axes, panel.title)
        explain_marks(figure, self._marks([drawn for _, drawn in panels]))
        place_names(figure, [])
        return figure

    def points(self, rows: Sequence[Row], column: str) -> dict[str, list[float]]:
        """The values of a column by setting; settings without one are left out."""
        results: dict[str, list[float]] = {}
        for row in rows:
            value = number_of(row.get(column))
            if value is not None and row.get("baseline") is None:
                results.setdefault(setting_of(row), []).append(value)
        return results

    def _drawn(self, panel: Panel, named: NamedRows) -> dict[str, _Points]:
        """The values of every column of a panel, by setting in words."""
        columns = (panel.across,) if panel.across else self.columns
        results: dict[str, dict[str, list[float]]] = {}
        for column in columns:
            for name, row in named:
                value = number_of(row.get(column))
                if value is not None:
                    held = results.setdefault(column, {})
                    held.setdefault(worded(name, self.labels), []).append(value)
        return dict(results)

    def _levels(
        self, panel: Panel, drawn: Mapping[str, _Points], rows: Sequence[Row]
    ) -> list[tuple[str, Level | None]]:
        """What is written above the settings of a panel, a row each: baselines near, and far."""
        results: list[tuple[str, Level | None]] = []
        for column, points in drawn.items():
            levels = levels_of(panel, rows, column, self.labels)
            values = [value for held in points.values() for value in held]
            near, far = near_and_far(levels, values, is_logarithmic=self.is_logarithmic)
            results += [(f"{name}: {short(level.mean)}", level) for name, level in near.items()]
            for form, is_above in (("← {}", False), ("{} →", True)):
                outside = [
                    f"{name}: {short(level.mean)}"
                    for name, level in far.items()
                    if (level.mean > max(values)) == is_above
                ]
                results += [(form.format(line), None) for line in lines_of(outside)]
        return results

    def _draw(self, axes: Any, drawn: Mapping[str, _Points]) -> None:
        settings = _settings(drawn)
        if self.is_logarithmic:
            axes.set_xscale("log")
        columns = [column for column in drawn if column != "published"]
        for column, points in drawn.items():
            places: list[float] = [settings.index(setting) for setting in points]
            means = [statistics.fmean(held) for held in points.values()]
            if column == "published":
                axes.plot(means, places, "x", color=MUTED, markersize=6, markeredgewidth=1.5)
                continue
            # Columns stand above each other, so that none hides another.
            step = 0.24 * (columns.index(column) - (len(columns) - 1) / 2)
            places = [place + step for place in places]
            shown = self._colour(column)
            for place, held in zip(places, points.values(), strict=True):
                interval = interval_of(held)
                if interval is not None:
                    low, high = (interval.mean + sign * interval.half_width for sign in (-1, 1))
                    axes.hlines(place, low, high, color=shown, linewidth=1.4, alpha=0.6)
                    axes.plot(
                        held, [place] * len(held), ".", color=shown, markersize=3.5, alpha=0.7
                    )
            axes.plot(means, places, "o", color=shown, markersize=5.5)
        if self.is_logarithmic:
            number_ticks(axes.xaxis)
        if not self.shares_axis or axes.get_subplotspec().is_last_row():
            axes.set_xlabel(", ".join(worded(column, self.labels) for column in columns))

    def _colour(self, column: str) -> str:
        return colour(self.columns.index(column) if column in self.columns else 0)

    def _marks(self, every: Sequence[Mapping[str, _Points]]) -> list[Mark]:
        marks = []
        if any(len(drawn) > 1 for drawn in every):
            for column in self.columns:
                if any(column in drawn for drawn in every):
                    text = worded(column, self.labels)
                    marks.append(PUBLISHED if column == "published"
                                 else Mark(text, self._colour(column), linestyle=""))  # fmt: skip
        if any(len(held) > 1 for drawn in every for points in drawn.values()
               for held in points.values()):  # fmt: skip
            marks += [SEED, interval_mark(is_level=True)]
        return marks


def _settings(drawn: Mapping[str, _Points]) -> list[str]:
    return list(dict.fromkeys(setting for points in drawn.values() for setting in points))


def _name_rows(
    axes: Any, settings: Sequence[str], levels: Sequence[tuple[str, Level | None]]
) -> None:
    """Name the settings, and above them the baselines: near ones beside their lines."""
    axes.set_yticks(range(len(settings)), settings, fontsize="small")
    axes.tick_params(axis="y", length=0)
    for place in range(len(settings)):
        axes.axhline(place, color="#E2E8F0", linewidth=0.6, zorder=0)
    low = max(len(settings), 1) - 0.5
    for number, (_, level) in enumerate(levels, start=1):
        if level is not None:  # as high as its name
            ends = [low, -number - 0.4]
            axes.plot([level.mean] * 2, ends, ":", color=MUTED, linewidth=1.2)
            if level.half_width:
                sides = (level.mean + sign * level.half_width for sign in (-1, 1))
                axes.fill_betweenx(ends, *sides, color=MUTED, alpha=0.1, linewidth=0, zorder=0)
    axes.set_ylim(low, -0.5 - len(levels))
    axes.autoscale_view(scaley=False)
    to_axes = axes.transData + axes.transAxes.inverted()
    for number, (text, level) in enumerate(levels, start=1):
        # On the side where there is room, or at the edge that it is beyond.
        if level is None:
            is_left = text.endswith("→")
            at, kind = float(is_left), axes.get_yaxis_transform()
        else:
            is_left = to_axes.transform((level.mean, 0))[0] > 0.5
            at, kind = level.mean, "data"
        axes.annotate(
            text,
            (at, -number),
            xycoords=kind,
            xytext=(-4 if is_left else 4, 0),
            textcoords="offset points",
            ha="right" if is_left else "left",
            va="center",
            color=MUTED,
            fontsize="small",
        )
