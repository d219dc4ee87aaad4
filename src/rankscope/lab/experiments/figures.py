"""Figures of finished rows, declared as data: lines over a quantity, dots by setting, curves."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rankscope.lab.experiments.experiment import Row
from rankscope.lab.experiments.figure_names import Names, place_names
from rankscope.lab.experiments.figure_parts import (
    MUTED,
    PUBLISHED,
    SEED,
    SEED_LINE,
    Labels,
    Level,
    Mark,
    NamedRows,
    Panel,
    Point,
    by_panel,
    colour,
    explain_marks,
    in_order,
    interval_mark,
    interval_of,
    levels_of,
    lines_of,
    names_above,
    near_and_far,
    number_of,
    number_ticks,
    panel_grid,
    setting_of,
    short,
    tick_places,
    worded,
    write_title,
)

# Lines: one quantity against another.


@dataclass(frozen=True)
class LineFigure:
    """Draws the rows that have both quantities; seeds as small dots, their means joined by lines.

    Args:
        across: column of the horizontal axis.
        up: column of the vertical axis.
        group: column that tells the lines apart, or several that do so together; none if the
            panels' expressions do.
        is_logarithmic: whether the horizontal axis is.
        is_joined: whether the means of a group are joined by a line; if not, every point is a row
            of its own, and nothing is averaged.
        panels: which settings are drawn beside each other.
        labels: names of columns, groups and baselines in words.
        dashed: ending of groups that are drawn dashed, in the colour of the group without it.
        is_logarithmic_up: whether the vertical axis is.
        top: where the vertical axis ends; values above are written there as numbers.
        shares_axis: whether all panels have one vertical axis.
    """

    across: str
    up: str
    group: str | tuple[str, ...] = ()
    is_logarithmic: bool = True
    is_joined: bool = True
    panels: tuple[Panel, ...] = (Panel(),)
    labels: Labels = field(default_factory=dict)
    dashed: str = ""
    is_logarithmic_up: bool = False
    top: float | None = None
    shares_axis: bool = False

    def __call__(self, rows: Sequence[Row]) -> object:
        """A `matplotlib.figure.Figure`."""
        panels = [
            (panel, named, groups)
            for panel, named in by_panel(self.panels, rows)
            if (groups := self._groups(panel, named))
        ]
        figure, grid = panel_grid(
            len(panels),
            shares_up=self.shares_axis,
            shares_across=self.shares_axis and not any(panel.across for panel, _, _ in panels),
        )
        every = in_order((name for _, _, groups in panels for name in groups), self.labels)
        if isinstance(self.group, str):
            every.sort(key=self._number)
        repeated = names_above(every, [groups for _, _, groups in panels])
        if not self.is_joined:  # points have no ends to write a name beside
            repeated = set(every)
        written = []
        for axes, (panel, named, groups) in zip(grid, panels, strict=False):
            names = Names(axes)
            self._draw(names, groups, every)
            names.ends = [
                (text, shown, points)
                for name, shown, points in names.ends
                if name not in repeated and (text := worded(name, self.labels))
            ]
            self._draw_published(axes, panel, named, every)
            column = panel.up or self.up
            values = [
                value
                for other, _, held in panels
                if other == panel or self.shares_axis
                for points in held.values()
                for _, value in points
            ]
            levels = levels_of(panel, rows, column, self.labels)
            names.draw_levels(levels, values, is_logarithmic=self.is_logarithmic_up)
            self._name_axes(axes, panel)
            # Of shared axes the ticks are shared, too.
            if self.is_joined and not self.shares_axis:
                tick_places(axes.xaxis, [place for held in groups.values() for place, _ in held])
            written.append(names)
        explain_marks(figure, self._marks(panels, every, repeated))
        place_names(figure, written)
        return figure

    def groups(self, rows: Sequence[Row]) -> dict[str, list[Point]]:
        """The points of every group of all panels, in the order of the rows."""
        results: dict[str, list[Point]] = {}
        for panel, named in by_panel(self.panels, rows):
            for name, points in self._groups(panel, named).items():
                results.setdefault(name, []).extend(points)
        return results

    def _groups(self, panel: Panel, named: NamedRows) -> dict[str, list[Point]]:
        results: dict[str, list[Point]] = {}
        for name, row in named:
            place = number_of(row.get(panel.across or self.across))
            value = number_of(row.get(panel.up or self.up))
            if place is not None and value is not None:
                results.setdefault(self._name(name, row), []).append((place, value))
        return results

    def _name(self, name: str, row: Row) -> str:
        if not self.group:
            return name
        if isinstance(self.group, str):
            value = row.get(self.group)
            # A number needs the name of what it counts; a word says it itself.
            return value if isinstance(value, str) else f"{self.group} {value}"
        return ", ".join(worded(str(row.get(column)), self.labels) for column in self.group)

    def _number(self, name: str) -> float:
        """Groups that are told apart by a number stand in its order."""
        value = name.removeprefix(f"{self.group} ")
        return float(value) if value.replace(".", "").isdecimal() else 0.0

    def _style(self, name: str, every: Sequence[str]) -> tuple[str, Literal["-", "--"]]:
        """The colour and the dashes of a group."""
        is_dashed = bool(self.dashed) and name.endswith(self.dashed)
        plain = [one.removesuffix(self.dashed) if self.dashed else one for one in every]
        number = list(dict.fromkeys(plain)).index(plain[every.index(name)])
        return colour(number), "--" if is_dashed else "-"

    def _draw(
        self, names: Names, groups: Mapping[str, Sequence[Point]], every: Sequence[str]
    ) -> None:
        from matplotlib.transforms import ScaledTranslation

        axes = names.axes
        if self.is_logarithmic_up:
            axes.set_yscale("log")
        places = [place for points in groups.values() for place in {one for one, _ in points}]
        is_crowded = any(len(points) > len(_by_place(points)) for points in groups.values())
        is_crowded = is_crowded and self.is_joined and len(places) > len(set(places))
        above = 0
        for number, (name, points) in enumerate(groups.items()):
            shown, dashes = self._style(name, every)
            inside = [one for one in points if self.top is None or one[1] <= self.top]
            if len(inside) < len(points):
                outside = [one for one in points if one not in inside]
                # Their numbers stand above the axis, and so within its ends.
                axes.update_datalim(outside, updatey=False)
                _write_above(axes, worded(name, self.labels), outside, shown, above)
                above += 1
            if not inside:
                continue
            # Intervals at one place stand beside each other.
            step = 2.5 / 72 * (number - (len(groups) - 1) / 2) if is_crowded else 0.0
            moved = axes.transData + ScaledTranslation(step, 0, axes.figure.dpi_scale_trans)
            means = _means(inside) if self.is_joined else inside
            drawn = _draw_points(axes, inside, shown) if self.is_joined else []
            drawn += axes.plot(
                *zip(*means, strict=True),
                f"o{dashes if self.is_joined else ''}",
                color=shown,
                markersize=4.5,
                label=worded(name, self.labels) or None,
            )
            for mark in drawn:
                mark.set_transform(moved)
            names.ends.append((name, shown, means))
        if self.top is not None:
            axes.set_ylim(top=self.top)

    def _draw_published(
        self, axes: Any, panel: Panel, named: NamedRows, every: Sequence[str]
    ) -> None:
        """The source's numbers as crosses in the colours of their lines."""
        for name, row in named:
            place, value = number_of(row.get(panel.across or self.across)), row.get("published")
            group = self._name(name, row)
            if place is not None and isinstance(value, int | float):
                shown, _ = self._style(group, every) if group in every else (MUTED, "")
                axes.plot([place], [value], "x", color=shown, markersize=6, markeredgewidth=1.5)

    def _name_axes(self, axes: Any, panel: Panel) -> None:
        across, up = panel.across or self.across, panel.up or self.up
        if self.is_logarithmic:
            axes.set_xscale("log")
            number_ticks(axes.xaxis)
        if self.is_logarithmic_up:
            number_ticks(axes.yaxis)
        axes.margins(x=0.06)
        axes.set_xlabel(worded(across, self.labels))
        if not self.shares_axis or axes.get_subplotspec().is_first_col():
            axes.set_ylabel(worded(up, self.labels))
        write_title(axes, panel.title)

    def _marks(
        self,
        panels: Sequence[tuple[Panel, NamedRows, Mapping[str, Sequence[Point]]]],
        every: Sequence[str],
        repeated: set[str],
    ) -> list[Mark]:
        marks = []
        for name in every:
            if name in repeated and worded(name, self.labels):
                shown, dashes = self._style(name, every)
                kind = dashes if self.is_joined else ""
                marks.append(Mark(worded(name, self.labels), shown, linestyle=kind))
        if any(row.get("published") is not None for _, named, _ in panels for _, row in named):
            marks.append(PUBLISHED)
        if self.is_joined and any(
            len(points) > len({place for place, _ in points})
            for _, _, groups in panels
            for points in groups.values()
        ):
            marks += [SEED, interval_mark(is_level=False)]
        return marks


def _draw_points(axes: Any, points: Sequence[Point], shown: str) -> list[Any]:
    """Every seed as a small dot, and the 95 % interval of every mean of several seeds."""
    drawn = list(axes.plot(*zip(*points, strict=True), ".", color=shown, markersize=3, alpha=0.7))
    for place, held in _by_place(points).items():
        interval = interval_of(held)
        if interval is not None:
            low, high = (interval.mean + sign * interval.half_width for sign in (-1, 1))
            drawn.append(axes.vlines(place, low, high, color=shown, linewidth=1.2, alpha=0.6))
    return drawn


def _write_above(axes: Any, name: str, points: Sequence[Point], shown: str, number: int) -> None:
    """Values above the end of the axis, as a row of numbers at their places."""
    for place, value in _means(points):
        axes.annotate(
            f"↑ {short(value)}",
            (place, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 4 + 12 * number),
            textcoords="offset points",
            color=shown,
            fontsize="small",
            ha="center",
        )
    axes.annotate(
        name,
        (1.0, 1.0),
        xycoords="axes fraction",
        xytext=(28, 4 + 12 * number),
        textcoords="offset points",
        color=shown,
        fontsize="small",
    )


def _by_place(points: Sequence[Point]) -> dict[float, list[float]]:
    results: dict[float, list[float]] = {}
    for place, value in sorted(points, key=lambda point: point[0]):
        results.setdefault(place, []).append(value)
    return results


def _means(points: Sequence[Point]) -> list[Point]:
    return [(place, statistics.fmean(values)) for place, values in _by_place(points).items()]


# Dots: settings that have no order, a line for each.


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


# Curves: lists of numbers, as of the epochs of a training.


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
        mean = _means([point for points in seeds for point in points])
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
