"""Names on a figure: beside the lines that they name, none over another.

They are placed last, when it is known where everything else lies: beside the right edge, or where
they cover least. The layout is fixed then, so that they stay there.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
from numpy.typing import NDArray

from rankscope.lab.experiments.figure_parts import MUTED, Level, Point, near_and_far, short


@dataclass
class Names:
    """The names to be written on one axes.

    Args:
        axes: where; matplotlib's classes can only be named where it is imported.
        ends: name, colour and points of every line that is named.
        levels: names of level lines, with their heights.
        far: names of levels that are above or below everything, with their arrows and heights.
    """

    axes: Any
    ends: list[tuple[str, str, Sequence[Point]]] = field(default_factory=list)
    levels: dict[str, float] = field(default_factory=dict)
    far: dict[str, float] = field(default_factory=dict)

    def draw_levels(
        self, levels: Mapping[str, Level], values: Sequence[float], *, is_logarithmic: bool = False
    ) -> None:
        """Level lines near the values; those far away are only named, at the edge."""
        near, far = near_and_far(levels, values, is_logarithmic=is_logarithmic)
        for level in near.values():
            self.axes.axhline(level.mean, color=MUTED, linestyle=":", linewidth=1.2, zorder=1)
            if level.half_width:
                low, high = (level.mean + sign * level.half_width for sign in (-1, 1))
                self.axes.axhspan(low, high, color=MUTED, alpha=0.1, linewidth=0, zorder=0)
        self.levels |= {name: level.mean for name, level in near.items()}
        self.far |= {
            f"{'↑' if level.mean > max(values) else '↓'} {name}": level.mean
            for name, level in far.items()
        }


_POINT = 4  # pixels for a point of a page, while names are placed
_APART = 2 * _POINT  # lines nearer than that look like one


def place_names(figure: Any, every: Sequence[Names]) -> None:
    """Write the names of a finished figure, each where it covers least, none over another."""
    dots = figure.dpi
    # Letters are as wide as in a file that is no grid of pixels.
    figure.set_dpi(72 * _POINT)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
    beside = [_write_beside(names) for names in every]
    figure.draw_without_rendering()  # so that places on the page are known
    figure.set_layout_engine("none")
    for axes in figure.axes:  # the solver's last digits differ between processes
        axes.set_position([round(float(edge), 4) for edge in axes.get_position().bounds])
    for names, (written, rest) in zip(every, beside, strict=True):
        _spread(names.axes, written)
        page = _Page(names.axes)
        for text, shown, points in rest:
            page.write(_around(points[-1]), text, shown, "small")
        for name, level in _merged_levels(names.axes, names.levels):
            page.write(_along(names.axes, level), name, MUTED, "x-small")
        for name, level in names.far.items():
            corners = _corners(is_above=name.startswith("↑"))
            page.write(corners, f"{name}: {short(level)}", MUTED, "x-small")
    figure.set_dpi(dots)


# Beside the right edge.


_LEADER = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3}
_Written = list[tuple[Any, Point]]
_Lines = list[tuple[str, str, Sequence[Point]]]


def _write_beside(names: Names) -> tuple[_Written, _Lines]:
    """Write the names of lines that go on to the right edge beside it; the rest is left."""
    axes = names.axes
    axes.autoscale_view()
    lines = _merged(axes, names.ends)
    places = [axes.transAxes.inverted().transform(_pixels(axes, points))[-1, 0]
              for _, _, points in lines]  # fmt: skip
    edge = max(places, default=0.0) - 0.02
    written, rest = [], []
    for (text, shown, points), place in zip(lines, places, strict=True):
        if place < edge or len(points) < 2:
            rest.append((text, shown, points))
            continue
        note = axes.annotate(
            text,
            points[-1],
            xytext=(1.02, points[-1][1]),
            textcoords=axes.get_yaxis_transform(),
            color=shown,
            fontsize="small",
            va="center",
            annotation_clip=False,
            arrowprops=_LEADER | {"color": shown, "relpos": (0, 0.5)},
        )
        written.append((note, points[-1]))
    return written, rest


def _merged(axes: Any, lines: Sequence[tuple[str, str, Sequence[Point]]]) -> _Lines:
    """One name for lines that nobody can tell apart."""
    results: _Lines = []
    for text, shown, points in lines:
        own = _pixels(axes, points)
        for number, (other, kept, held) in enumerate(results):
            if len(held) == len(points) and numpy.abs(_pixels(axes, held) - own).max() < _POINT:
                results[number] = (f"{other}, {text}", kept, held)
                break
        else:
            results.append((text, shown, points))
    return results


def _merged_levels(axes: Any, levels: Mapping[str, float]) -> list[tuple[str, float]]:
    """One name for level lines that nobody can tell apart."""
    results: list[tuple[str, float]] = []
    for name, level in levels.items():
        for number, (other, held) in enumerate(results):
            one, two = _pixels(axes, [(1.0, held), (1.0, level)])
            if abs(one[1] - two[1]) < _APART:
                results[number] = (f"{other} and {name}", held)
                break
        else:
            results.append((name, level))
    return results


def _pixels(axes: Any, points: Sequence[Point]) -> NDArray[numpy.float64]:
    result: NDArray[numpy.float64] = axes.transData.transform(numpy.array(points, dtype=float))
    return result


def _spread(axes: Any, written: _Written) -> None:
    """Move names up and down until none is over another, and all are beside the axes."""
    if not written:
        return
    ordered = sorted(written, key=lambda one: (one[1][1], one[0].get_text()))
    heights = [_extent(note).height + _POINT for note, _ in ordered]
    wanted = [float(_pixels(axes, [end])[0, 1]) for _, end in ordered]
    box = axes.get_window_extent()
    places = _apart(wanted, heights, float(box.y0), float(box.y1))
    for (note, end), place in zip(ordered, places, strict=True):
        _, height = axes.transData.inverted().transform((box.x1, place))
        note.xyann = (1.02, height)
        _, own = _pixels(axes, [end])[0]
        if abs(place - own) < _APART and box.x1 - _pixels(axes, [end])[0, 0] < 30 * _POINT:
            note.arrow_patch.set_visible(False)


def _apart(
    wanted: Sequence[float], heights: Sequence[float], low: float, high: float
) -> list[float]:
    """Places in the order of those wanted, as near to them as fits between two ends.

    Names that would touch make a block, whose middle is the mean of what its names want.
    """
    blocks: list[tuple[list[int], float]] = []  # of numbers, and the middle of each
    for number, place in enumerate(wanted):
        members, middle = [number], place
        while True:
            half = sum(heights[one] for one in members) / 2
            middle = max(low + half, min(high - half, middle))
            if not blocks:
                break
            others, other = blocks[-1]
            if other + sum(heights[one] for one in others) / 2 <= middle - half:
                break
            blocks.pop()
            members = [*others, *members]
            middle = sum(wanted[one] for one in members) / len(members)
        blocks.append((members, middle))
    results = [0.0] * len(wanted)
    for members, middle in blocks:
        top = middle - sum(heights[one] for one in members) / 2
        for one in members:
            results[one] = top + heights[one] / 2
            top += heights[one]
    return results


# Among the lines.


# Coordinates, their kind, and where the text lies from there: horizontally and vertically.
_Candidate = tuple[Point, str, tuple[float, float], str, str]


def _around(point: Point) -> list[_Candidate]:
    """Places around the last point of a line."""
    return [
        (point, "data", offset, across, up)
        for offset, across, up in (
            ((7, 0), "left", "center"),
            ((0, 7), "center", "bottom"),
            ((0, -7), "center", "top"),
            ((5, 6), "left", "bottom"),
            ((5, -6), "left", "top"),
            ((-7, 0), "right", "center"),
            ((-5, 6), "right", "bottom"),
            ((-5, -6), "right", "top"),
            *(
                (
                    (side * step, up * step),
                    "left" if side > 0 else "right" if side else "center",
                    "bottom" if up > 0 else "top",
                )
                for step in (14, 24, 36)
                for up in (-1, 1)
                for side in (1, 0, -1)
            ),
        )
    ]


def _along(axes: Any, level: float) -> list[_Candidate]:
    """Places above and below a level line, from its ends to its middle."""
    place = float(axes.transAxes.inverted().transform(_pixels(axes, [(1.0, level)]))[0, 1])
    return [
        ((across, place), "axes fraction", (0, up), side, "bottom" if up > 0 else "top")
        for across, side in (
            (0.01, "left"), (0.99, "right"), (0.5, "center"), (0.25, "center"), (0.75, "center"),
        )
        for up in (1.5, -1.5)
    ]  # fmt: skip


def _corners(*, is_above: bool) -> list[_Candidate]:
    return [
        ((across, 1 - step if is_above else step), "axes fraction", (0, 0), side,
         "top" if is_above else "bottom")
        for step in (0.01, 0.06, 0.11)
        for across, side in ((0.99, "right"), (0.01, "left"), (0.5, "center"))
    ]  # fmt: skip


def _extent(note: Any) -> Any:
    """The box of a text without its leader."""
    from matplotlib.text import Text

    note.get_window_extent()  # puts it in its place
    return Text.get_window_extent(note)


class _Page:
    """What lies on an axes, so that a name can be written where it covers least."""

    def __init__(self, axes: Any) -> None:
        self.axes = axes
        self.frame = axes.get_window_extent()
        self.taken = [_extent(text) for text in axes.texts if text.get_text()]
        # What a marker covers.
        near = 3 * _POINT * numpy.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)])
        parts = [
            _sampled(
                line.get_transform().transform(line.get_xydata()),
                is_joined=line.get_linestyle() != "None",
            )
            for line in axes.lines
        ]
        parts += [
            _sampled(held.get_transform().transform(segment), is_joined=True)
            for held in axes.collections
            for segment in held.get_segments()
        ]
        parts += [
            (line.get_transform().transform(line.get_xydata())[:, None] + near).reshape(-1, 2)
            for line in axes.lines
            if line.get_marker() not in ("", "None", None, ".")
        ]
        self.ink = numpy.concatenate([numpy.empty((0, 2)), *parts])

    def write(self, candidates: Sequence[_Candidate], text: str, shown: str, size: str) -> None:
        """Write a name at the first of the candidates that covers least."""
        best: tuple[float, Any, Any] | None = None
        for place, kind, offset, across, up in candidates:
            note = self.axes.annotate(
                text, place, xycoords=kind, xytext=offset, textcoords="offset points",
                color=shown, fontsize=size, ha=across, va=up,
                arrowprops=_LEADER | {"color": shown} if max(map(abs, offset)) > 10 else None,
            )  # fmt: skip
            box = _extent(note)
            cost = self._cost(box) + max(map(abs, offset)) / 10  # near its place, if it is alike
            if best is None or cost < best[0]:
                if best is not None:
                    best[1].remove()
                best = cost, note, box
            else:
                note.remove()
        assert best is not None, "there are candidates"
        self.taken.append(best[2])

    def _cost(self, box: Any) -> float:
        wide = box.padded(_POINT)
        inside = (
            (self.ink[:, 0] > wide.x0)
            & (self.ink[:, 0] < wide.x1)
            & (self.ink[:, 1] > wide.y0)
            & (self.ink[:, 1] < wide.y1)
        )
        over = sum(bool(box.overlaps(other)) for other in self.taken)
        frame, page = self.frame, self.axes.figure.bbox
        is_out = box.x0 < frame.x0 or box.x1 > page.x1 or box.y0 < frame.y0 or box.y1 > frame.y1
        # To the right there is room for names, if it is not taken.
        beyond = 200.0 * bool(is_out) + 5.0 * bool(box.x1 > frame.x1)
        return float(inside.sum()) + 1000.0 * over + beyond


def _sampled(corners: NDArray[numpy.float64], *, is_joined: bool) -> NDArray[numpy.float64]:
    """Places along a line, a point apart."""
    corners = corners[numpy.isfinite(corners).all(axis=1)]
    if len(corners) < 2 or not is_joined:
        return corners
    parts = []
    for start, end in itertools.pairwise(corners):
        steps = min(2000, 1 + int(numpy.abs(end - start).max() / _POINT))
        parts.append(start + (end - start) * numpy.linspace(0, 1, steps + 1)[:, None])
    return numpy.concatenate(parts)
