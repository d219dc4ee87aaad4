"""Names in the picture of a plan: of its points, and of the two sides of the law."""

import math
from dataclasses import astuple
from typing import Any

import numpy
from jaxtyping import Float
from numpy import ndarray

from rankscope.auditing.label_places import Box, place_labels, shared_areas
from rankscope.auditing.law import DepthLaw
from rankscope.auditing.plan import Plan
from rankscope.diagrams.pictures.themes import LIGHT

INK, MUTED = LIGHT.label("caption"), LIGHT.label("muted")
ACCENT, LAW = LIGHT.wire("cut").color, LIGHT.shape("parameter").stroke
TEXT: dict[str, Any] = {"fontsize": 8, "ha": "center", "va": "center"}
GAP = 9.0  # pixels between a point and its label
FAR = 2.5  # gaps from which on a line joins the two
# Drawn lines are avoided as rows of small boxes.
LINE_ROOM, LINE_STEPS = 4.0, 400
SLIVER = 1e-6  # square pixels that rounding may put outside the frame
LEFT_SIDE, RIGHT_SIDE = "shallower than the law: deepen", "deeper than the law: widen"
# Heights at which the sides are written, as shares of the frame, the best first.
HEIGHTS = (0.3, 0.25, 0.35, 0.2, 0.4, 0.15, 0.5, 0.1, 0.6, 0.7, 0.8, 0.9, 0.05)


# Matplotlib's classes can only be named where it is imported; hence Any.
def draw_labels(renderer: Any, axes: Any, plan: Plan) -> None:
    """Write the names, clear of each other and of everything drawn before."""
    drawn = _obstacles(axes)
    names = _name_points(renderer, axes, plan, drawn)
    taken = numpy.vstack([drawn, *(astuple(name) for name in names)])
    # The two sides cannot meet: the law is between them.
    for side in ((LEFT_SIDE, True), (RIGHT_SIDE, False)):
        _name_side(renderer, axes, plan.law, taken, side)


def _name_points(
    renderer: Any, axes: Any, plan: Plan, obstacles: Float[ndarray, "count 4"]
) -> tuple[Box, ...]:
    named = [(f"{plan.depth:,} x {plan.width:,}", plan.shape, ACCENT)]
    named += [(model.name, model.shape, INK) for model in plan.compared]
    texts = [axes.text(0, 0, name, color=color, **TEXT) for name, _, color in named]
    points = [tuple(axes.transData.transform((shape.depth, shape.width))) for _, shape, _ in named]
    places = place_labels(
        points,
        [_size(text, renderer) for text in texts],
        _frame(renderer, axes),
        gap=GAP,
        obstacles=obstacles,
    )
    from_pixels = axes.transData.inverted()
    for text, point, place in zip(texts, points, places, strict=True):
        text.set_position(from_pixels.transform(place.center))
        end = place.nearest(*point)
        if math.dist(point, end) > FAR * GAP:
            leader = from_pixels.transform([point, end])
            axes.plot(leader[:, 0], leader[:, 1], color=MUTED, linewidth=0.7, zorder=1.5)
    return places


def _name_side(
    renderer: Any,
    axes: Any,
    law: DepthLaw,
    taken: Float[ndarray, "count 4"],
    side: tuple[str, bool],
) -> None:
    """Write one side's name beside the law where there is room; nowhere if there is none."""
    name, is_left = side
    text, frame = axes.text(0, 0, name, color=LAW, **TEXT), _frame(renderer, axes)
    width, height = _size(text, renderer)
    for share in HEIGHTS:
        middle = frame.bottom + share * (frame.top - frame.bottom)
        # The law leans to the right: the nearer end is below on its left, above on its right.
        edge = _across(axes, law, middle + (-height if is_left else height))
        center = edge + (-1 if is_left else 1) * (2 * GAP + width / 2)
        place = Box.around(center, middle, (width, height))
        covered = float(shared_areas(numpy.array([astuple(place)]), taken).sum())
        if covered == 0 and place.outside(frame) < SLIVER:
            text.set_position(axes.transData.inverted().transform(place.center))
            return
    text.remove()


def _across(axes: Any, law: DepthLaw, up: float) -> float:
    """Where the law lies at a height, in pixels."""
    _, width = axes.transData.inverted().transform((0.0, up))
    # A logarithmic axis has no place for what is not positive.
    depth = max(law.depth_for_width(float(width)), 1e-3)
    return float(axes.transData.transform((depth, width))[0])


def _obstacles(axes: Any) -> Float[ndarray, "count 4"]:
    """Small boxes along every line and point that is drawn."""
    found = []
    for line in axes.get_lines():
        # A line across the whole frame is given by its two ends.
        path = line.get_path().interpolated(LINE_STEPS if len(line.get_xdata()) == 2 else 1)
        found.append(line.get_transform().transform(path.vertices))
    points = numpy.vstack(found)
    return numpy.hstack([points - LINE_ROOM / 2, points + LINE_ROOM / 2])


def _size(text: Any, renderer: Any) -> tuple[float, float]:
    extent = text.get_window_extent(renderer)
    return float(extent.width), float(extent.height)


def _frame(renderer: Any, axes: Any) -> Box:
    extent = axes.get_window_extent(renderer)
    return Box(float(extent.x0), float(extent.y0), float(extent.x1), float(extent.y1))
