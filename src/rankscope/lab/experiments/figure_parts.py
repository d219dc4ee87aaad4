"""What figures of rows are made of: colours, words, panels, and what their marks mean."""

import math
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from rankscope.lab.experiments.claims import Row
from rankscope.lab.experiments.table import Interval
from rankscope.lab.experiments.wording import Labels, capitalized, worded

# The colours of the project's diagrams, in an order in which neighbours differ.
COLOURS = ("#1E40AF", "#C2410C", "#0F766E", "#A21C5B", "#7E22CE", "#334155", "#B45309", "#0369A1",
           "#4D7C0F", "#BE123C")  # fmt: skip
MUTED = "#5B6B82"
Point = tuple[float, float]


def colour(number: int) -> str:
    """The colour of a line, by its number."""
    return COLOURS[number % len(COLOURS)]


def short(value: float) -> str:
    """A number for a label, in a few characters.

    Example:
        >>> short(315_833_360.9), short(22_718.9), short(96.944)
        ('316 million', '22,719', '96.9')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} million"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def lines_of(parts: Sequence[str], *, most: int = 60) -> list[str]:
    """Parts of a list as lines of at most so many characters, as far as single ones allow.

    Example:
        >>> lines_of(["one: 1", "two: 2", "three: 3"], most=15)
        ['one: 1, two: 2', 'three: 3']
    """
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 2 <= most:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return lines


# Level lines: baselines, and models that nothing was done to.


_NEAR = 0.4  # of the range of the points: a line further away would squeeze them


@dataclass(frozen=True)
class Level:
    """The mean of a baseline, with half the width of its 95 % interval: 0 for one seed."""

    mean: float
    half_width: float = 0.0


def near_and_far(
    levels: Mapping[str, Level], values: Sequence[float], *, is_logarithmic: bool = False
) -> tuple[dict[str, Level], dict[str, Level]]:
    """The levels that may be drawn among the values, and those that are too far away from them.

    Example:
        >>> near, far = near_and_far({"linear": Level(95), "majority": Level(10)}, [96.0, 99.0])
        >>> list(near), list(far)
        (['linear'], ['majority'])
    """
    if not values:
        return dict(levels), {}

    def place(value: float) -> float:
        return math.log(max(value, 1e-300)) if is_logarithmic else value

    low, high = place(min(values)), place(max(values))
    reach = _NEAR * (high - low or 0.1 * abs(high) or 1.0)
    near = {
        name: level
        for name, level in levels.items()
        if low - reach <= place(level.mean) <= high + reach
    }
    return near, {name: level for name, level in levels.items() if name not in near}


# Panels: which settings are drawn beside each other.


@dataclass(frozen=True)
class Panel:
    """Settings that are compared with each other, on axes of their own.

    Args:
        title: what they have in common, in words.
        settings: a regular expression of all of their names; what its group matches tells them
            apart.
        across: column of the horizontal axis, if it is not that of the figure.
        up: column of the vertical axis, if it is not that of the figure.
        baselines: a regular expression of the names of baselines that are drawn as level lines; its
            group is what they are called.
        levels: the same for settings that are drawn so, as the model that nothing was done to.
    """

    title: str = ""
    settings: str = "(.*)"
    across: str = ""
    up: str = ""
    baselines: str = "(.+)"
    levels: str = ""


NamedRows = list[tuple[str, Row]]


def by_panel(
    panels: Sequence[Panel], rows: Sequence[Row], *, is_split: bool = False
) -> list[tuple[Panel, NamedRows]]:
    """The rows of every panel with what tells them apart.

    Rows of no panel get one of their own; one for each setting, if they are to be split.
    """
    drawn = [
        row
        for row in rows
        if row.get("baseline") is None
        and not any(
            panel.levels and re.fullmatch(panel.levels, setting_of(row)) for panel in panels
        )
    ]
    results: list[tuple[Panel, NamedRows]] = []
    matched: set[str] = set()
    for panel in panels:
        own: NamedRows = []
        for row in drawn:
            match = re.fullmatch(panel.settings, setting_of(row))
            if match is not None:
                own.append(((match[1] or "") if match.re.groups else "", row))
                matched.add(setting_of(row))
        results.append((panel, own))
    rest = [(setting_of(row), row) for row in drawn if setting_of(row) not in matched]
    if is_split:
        names = dict.fromkeys(name for name, _ in rest)
        return [
            *results,
            *((Panel(name), [one for one in rest if one[0] == name]) for name in names),
        ]
    return [*results, (Panel("other settings" if matched else ""), rest)]


def setting_of(row: Row) -> str:
    """The name of the setting of a row."""
    return str(row.get("setting", ""))


def levels_of(panel: Panel, rows: Sequence[Row], column: str, labels: Labels) -> dict[str, Level]:
    """The baselines of a panel, and the settings that are drawn like them."""
    values: dict[str, list[float]] = {}
    for row in rows:
        number = number_of(row.get(column))
        name, pattern = row.get("baseline"), panel.baselines
        if name is None:
            name, pattern = setting_of(row), panel.levels
        match = re.fullmatch(pattern, str(name)) if pattern else None
        if match is not None and number is not None:
            values.setdefault(worded(match[1], labels), []).append(number)
    intervals = {name: interval_of(held) for name, held in values.items()}
    return {
        name: Level(held[0]) if interval is None else Level(interval.mean, interval.half_width)
        for (name, held), interval in zip(values.items(), intervals.values(), strict=True)
    }


def number_of(value: object) -> float | None:
    """A number of a row; None if it is none."""
    return float(value) if isinstance(value, int | float) else None


def interval_of(values: Sequence[float]) -> Interval | None:
    """What the table prints for several seeds; None for one."""
    return Interval.of(values, seeds=len(values)) if len(values) > 1 else None


def panel_grid(count: int, *, shares_up: bool, shares_across: bool) -> tuple[Any, list[Any]]:
    """A figure with axes for a number of panels, at least one."""
    from matplotlib.figure import Figure

    count = max(1, count)
    columns = count if count <= 3 else 2 if count == 4 else 3
    lines = -(-count // columns)
    width, height = {1: (6.4, 4.2), 2: (3.9, 3.4)}.get(columns, (2.75, 2.6))
    figure = Figure(figsize=(width * columns, height * lines), layout="constrained")
    grid = figure.subplots(
        lines, columns, squeeze=False, sharey=shares_up, sharex=shares_across
    ).flatten()
    for spare in grid[count:]:
        spare.remove()
    for axes in grid[:count]:
        axes.tick_params(labelbottom=True)
    return figure, list(grid[:count])


def by_place(points: Sequence[Point]) -> dict[float, list[float]]:
    """The values at every place, in the order of places."""
    results: dict[float, list[float]] = {}
    for place, value in sorted(points, key=lambda point: point[0]):
        results.setdefault(place, []).append(value)
    return results


def means_of(points: Sequence[Point]) -> list[Point]:
    """The mean at every place."""
    return [(place, statistics.fmean(values)) for place, values in by_place(points).items()]


def write_title(axes: Any, title: str) -> None:
    """The title of a panel, which begins as a sentence does."""
    size = "medium" if axes.get_subplotspec().get_gridspec().ncols < 3 else "small"
    axes.set_title(capitalized(title), loc="left", fontsize=size, fontweight="bold")


# Ticks that people can read.


_MOST_TICKS, _LONG_TICK = 7, 1000


def number_ticks(axis: Any) -> None:
    """Of a logarithmic axis: numbers as people write them, nearer ones for less than a decade."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    if low > 0 and high / low < 1e4:
        is_short = high / low < 10
        axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if is_short else (1, 2, 5)))
        axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter(NullFormatter())


def tick_places(axis: Any, places: Iterable[float]) -> None:
    """Ticks where the points are, if these are few, short and far enough from each other."""
    from matplotlib.ticker import NullLocator

    held = sorted(set(places))
    if not 2 <= len(held) <= _MOST_TICKS or held[-1] >= _LONG_TICK:
        return
    on_axis = [math.log(place) for place in held] if axis.get_scale() == "log" else held
    gap = min(after - before for before, after in pairwise(on_axis))
    if gap >= (on_axis[-1] - on_axis[0]) / (_MOST_TICKS + 1):
        axis.set_ticks(held, [f"{place:.3g}" for place in held])
        axis.set_minor_locator(NullLocator())


def in_order(names: Iterable[str], labels: Labels) -> list[str]:
    """Every name once, those with labels first and in their order: it decides on colours."""
    every = list(dict.fromkeys(names))
    return sorted(every, key=lambda name: list(labels).index(name) if name in labels else 999)


def names_above(every: Sequence[str], panels: Sequence[Collection[str]]) -> set[str]:
    """The names that stand above all panels instead of beside lines: all, if one is repeated."""
    is_repeated = any(sum(name in panel for panel in panels) > 1 for name in every)
    return set(every) if is_repeated else set()


# What the marks mean, above all panels.


@dataclass(frozen=True)
class Mark:
    """A mark of the row above all panels: a line's, a cross, a seed, an interval."""

    text: str
    colour: str = MUTED
    marker: str = "o"
    linestyle: Literal["-", "--", ""] = "-"
    size: float = 5.0
    width: float = 1.5


PUBLISHED = Mark("published", marker="x", linestyle="")
SEED = Mark("one seed", marker=".", linestyle="", size=4)
SEED_LINE = Mark("one seed", marker="", width=0.6)


def interval_mark(*, is_level: bool) -> Mark:
    """The mark of an interval, which lies level or stands upright."""
    return Mark("95 % interval of the mean", marker="_" if is_level else "|", linestyle="", size=10)


def explain_marks(figure: Any, marks: Sequence[Mark]) -> None:
    """One row above all panels that says what the marks mean."""
    from matplotlib.lines import Line2D

    if not marks:
        return
    handles = [
        Line2D([], [], color=mark.colour, marker=mark.marker or None, label=mark.text,
               linestyle=mark.linestyle, markersize=mark.size, linewidth=mark.width)
        for mark in marks
    ]  # fmt: skip
    widest = max(len(mark.text) for mark in marks)
    width, _ = figure.get_size_inches()
    fits = max(1, int((width - 0.2) / (0.068 * widest + 0.42)))
    rows = -(-len(marks) // fits)
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=-(-len(marks) // rows),
        fontsize="small",
        labelcolor="linecolor",
        handlelength=2.2,
        columnspacing=1.4,
    )
