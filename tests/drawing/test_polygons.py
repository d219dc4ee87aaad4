import math
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rankscope.drawing import Box
from rankscope.drawing.polygons import (
    box_corners,
    boxes_gap,
    flatten,
    gap,
    intersections,
    near_pairs,
    resampled,
    runs_along,
)

COORDINATES = st.floats(-300, 300)
POINTS = st.tuples(COORDINATES, COORDINATES)
BOXES = st.builds(
    lambda x, y, width, height: (x, y, x + width, y + height),
    COORDINATES,
    COORDINATES,
    st.floats(0.5, 150),
    st.floats(0.5, 150),
)


@given(first=BOXES, second=BOXES)
def test_the_gap_of_two_boxes_is_the_gap_of_their_corners(first: Box, second: Box) -> None:
    assert gap(box_corners(first), box_corners(second)) == pytest.approx(
        boxes_gap(first, second), abs=1e-9
    )


def test_an_edge_of_either_polygon_may_separate_them() -> None:
    box = box_corners((0.0, 0.0, 10.0, 10.0))
    diamond = [(10.0, 0.0), (20.0, 10.0), (10.0, 20.0), (0.0, 10.0)]
    beside = [(x + 7.0, y + 7.0) for x, y in diamond]
    # From the corner (10, 10) of the box to the edge x + y = 24 of the diamond.
    expected = (24.0 - 20.0) / math.sqrt(2)
    assert gap(box, beside) == pytest.approx(expected)
    assert gap(beside, box) == pytest.approx(expected)


@given(center=POINTS, radius=st.floats(1, 50), other=POINTS, other_radius=st.floats(1, 50))
def test_discs_are_apart_by_the_distance_of_their_centres_less_both_radii(
    center: tuple[float, float],
    radius: float,
    other: tuple[float, float],
    other_radius: float,
) -> None:
    def disc(middle: tuple[float, float], size: float) -> list[tuple[float, float]]:
        turns = [2 * math.pi * step / 64 for step in range(64)]
        return [(middle[0] + size * math.cos(t), middle[1] + size * math.sin(t)) for t in turns]

    # A polygon of 64 corners misses its circle by (1 - cos(pi/64)) of the radius.
    slack = (radius + other_radius) * (1 - math.cos(math.pi / 64)) + 1e-9
    expected = math.dist(center, other) - radius - other_radius
    # Between two normals of the polygons the axis may be off by pi/64.
    slack += math.dist(center, other) * (1 - math.cos(math.pi / 64))
    assert abs(gap(disc(center, radius), disc(other, other_radius)) - expected) <= slack


@settings(deadline=None)
@given(
    first=st.lists(BOXES, max_size=12), second=st.lists(BOXES, max_size=12), reach=st.floats(0, 9)
)
def test_near_pairs_are_all_pairs_within_reach(
    first: list[Box], second: list[Box], reach: float
) -> None:
    assert near_pairs(first, second, reach=reach) == [
        (place, other)
        for place, box in enumerate(first)
        for other, beside in enumerate(second)
        if boxes_gap(box, beside) <= reach
    ]


def test_near_pairs_reach_over_the_cells_that_boxes_are_sorted_into() -> None:
    first, second = (90.0, 0.0, 95.0, 5.0), (97.0, 0.0, 100.0, 5.0)
    assert near_pairs([first], [second], reach=2.0) == [(0, 0)]
    assert near_pairs([second], [first], reach=2.0) == [(0, 0)]
    assert near_pairs([first], [second], reach=1.9) == []


@given(a=POINTS, b=POINTS, c=POINTS, d=POINTS)
def test_a_crossing_lies_on_both_pieces(
    a: tuple[float, float],
    b: tuple[float, float],
    c: tuple[float, float],
    d: tuple[float, float],
) -> None:
    assume(math.dist(a, b) > 1 and math.dist(c, d) > 1)
    turn = (b[0] - a[0]) * (d[1] - c[1]) - (b[1] - a[1]) * (d[0] - c[0])
    assume(abs(turn) > 1e-2 * math.dist(a, b) * math.dist(c, d))
    for point in intersections([a, b], [c, d]):
        for start, end in ((a, b), (c, d)):
            detour = math.dist(start, point) + math.dist(point, end) - math.dist(start, end)
            assert abs(detour) < 1e-6


def test_pieces_cross_only_when_each_separates_the_ends_of_the_other() -> None:
    across = [(-9.0, 0.0), (9.0, 0.0)]
    assert list(intersections(across, [(3.0, -9.0), (3.0, 9.0)])) == [(3.0, 0.0)]
    assert list(intersections(across, [(30.0, -9.0), (30.0, 9.0)])) == []
    assert list(intersections(across, [(3.0, 1.0), (3.0, 9.0)])) == []


@given(points=st.lists(POINTS, min_size=2, max_size=6), spacing=st.floats(1, 20))
def test_resampling_keeps_the_length_and_points_along_the_line(
    points: list[tuple[float, float]], spacing: float
) -> None:
    total = sum(math.dist(a, b) for a, b in pairwise(points))
    pieces = list(resampled(points, spacing))
    assert sum(length for _, _, length in pieces) == pytest.approx(total, abs=1e-6)
    assert all(math.hypot(*direction) == pytest.approx(1) for _, direction, _ in pieces)


def test_a_line_runs_along_a_point_only_if_it_is_near_and_parallel() -> None:
    line = [(0.0, 0.0), (100.0, 0.0)]
    assert runs_along((50.0, 1.0), (1.0, 0.0), line, reach=1.5)
    assert runs_along((50.0, 1.0), (-1.0, 0.0), line, reach=1.5)
    assert not runs_along((50.0, 2.0), (1.0, 0.0), line, reach=1.5)
    assert not runs_along((50.0, 1.0), (0.0, 1.0), line, reach=1.5)
    assert not runs_along((120.0, 0.0), (1.0, 0.0), line, reach=1.5)


def test_flattening_follows_a_cubic_by_its_definition() -> None:
    start, first, second, end = (0.0, 0.0), (0.0, 9.0), (9.0, 9.0), (9.0, 0.0)
    points = flatten([("M", start), ("C", (*first, *second, *end))], steps=4)
    share = 0.25
    weights = [(1 - share) ** 3, 3 * share * (1 - share) ** 2, 3 * share**2 * (1 - share), share**3]
    corners = [start, first, second, end]
    x = sum(weight * corner[0] for weight, corner in zip(weights, corners, strict=True))
    y = sum(weight * corner[1] for weight, corner in zip(weights, corners, strict=True))
    assert points[1] == pytest.approx((x, y))
    assert points[-1] == end
