"""A figure of lines: one quantity against another; seeds as dots, their means joined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rankscope.lab.experiments.experiment import Row
from rankscope.lab.experiments.figure_names import Names, place_names
from rankscope.lab.experiments.figure_parts import (
    MUTED,
    PUBLISHED,
    SEED,
    Mark,
    NamedRows,
    Panel,
    Point,
    by_panel,
    by_place,
    colour,
    explain_marks,
    in_order,
    interval_mark,
    interval_of,
    levels_of,
    means_of,
    names_above,
    number_of,
    number_ticks,
    panel_grid,
    short,
    tick_places,
    write_title,
)
from rankscope.lab.experiments.wording import Labels, worded


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
        is_crowded = any(len(points) > len(by_place(points)) for points in groups.values())
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
            means = means_of(inside) if self.is_joined else inside
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
    for place, held in by_place(points).items():
        interval = interval_of(held)
        if interval is not None:
            low, high = (interval.mean + sign * interval.half_width for sign in (-1, 1))
            drawn.append(axes.vlines(place, low, high, color=shown, linewidth=1.2, alpha=0.6))
    return drawn


def _write_above(axes: Any, name: str, points: Sequence[Point], shown: str, number: int) -> None:
    """Values above the end of the axis, as a row of numbers at their places."""
    for place, value in means_of(points):
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
