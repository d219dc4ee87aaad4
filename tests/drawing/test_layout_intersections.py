import math

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.drawing import Point
from rankscope.drawing.layout import Route
from rankscope.drawing.layout.routes import (
    border_points,
    intersection,
    is_in_line,
    near_pieces,
    passes,
    shared_run,
)
from rankscope.drawing.polygons import intersections

POINTS = st.tuples(st.floats(-99.0, 99.0), st.floats(-99.0, 99.0))


@settings(deadline=None)
@given(POINTS, POINTS, POINTS, POINTS)
def test_pieces_meet_where_lines_intersect(a: Point, b: Point, c: Point, d: Point) -> None:
    if a != b and c != d:
        found = intersection((a, b), (c, d))
        assert ([] if found is None else [found]) == list(intersections((a, b), (c, d)))


@settings(deadline=None)
@given(POINTS, POINTS, st.floats(1.0, 40.0))
def test_a_route_passes_a_shape_iff_a_point_of_it_is_near(
    start: Point, end: Point, radius: float
) -> None:
    if math.dist(start, end) > 1.0:
        shares = [step / 400 for step in range(401)]
        nearest = min(
            math.hypot(
                start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])
            )
            for share in shares
        )
        box = (-radius, -radius, radius, radius)
        # Sampling every 1/400 of at most 281 px misses the nearest point by less than a pixel.
        if abs(nearest - radius) > 1.0:
            assert passes(Route((start, end)), box, 0.0) == (nearest < radius)


def test_points_beside_the_middle_of_a_box_are_in_line_with_it() -> None:
    box = (-27.0, -27.0, 27.0, 27.0)
    assert is_in_line(box, (0.0, 300.0))
    assert is_in_line(box, (-300.0, 5.0))
    assert is_in_line(box, (35.0, 35.0))
    assert not is_in_line(box, (60.0, 60.0))


def test_border_points_are_where_a_route_enters_and_leaves() -> None:
    frame = (0.0, 0.0, 100.0, 50.0)
    assert border_points(Route(((-10.0, 20.0), (110.0, 20.0))), frame) == [
        (0.0, 20.0),
        (100.0, 20.0),
    ]
    assert border_points(Route(((50.0, 20.0), (60.0, 20.0))), frame) == []
    assert border_points(Route(((200.0, 0.0), (300.0, 0.0))), frame) == []


def test_lines_side_by_side_share_a_run() -> None:
    first = ((0.0, 0.0), (100.0, 0.0))
    assert shared_run(first, ((150.0, 3.0), (60.0, 3.0)), reach=7.0) == (40.0, (80.0, 0.0))
    assert shared_run(first, ((60.0, 9.0), (150.0, 9.0)), reach=7.0)[0] == 0.0
    assert shared_run(first, ((50.0, -50.0), (50.0, 50.0)), reach=7.0)[0] == 0.0


def test_near_pieces_leave_out_what_is_far() -> None:
    corner = Route(((0.0, 0.0), (100.0, 0.0), (100.0, 100.0)))
    other = Route(((-50.0, 5.0), (-5.0, 5.0)))
    assert list(near_pieces(corner, other, reach=7.0)) == [
        (((0.0, 0.0), (100.0, 0.0)), ((-50.0, 5.0), (-5.0, 5.0)))
    ]
    assert list(near_pieces(corner, other, reach=1.0)) == []
