import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.drawing import (
    Scene,
    Shape,
    ShapeKind,
    Wire,
    around,
    corner_radius,
    shape_path,
    view_box,
    wire_path,
)
from rankscope.drawing.polygons import corners, flatten

LENGTHS = st.floats(4, 200)


@settings(deadline=None)
@given(kind=st.sampled_from(ShapeKind), width=LENGTHS, height=LENGTHS)
def test_outlines_are_closed_and_fill_their_box(
    kind: ShapeKind, width: float, height: float
) -> None:
    if kind is ShapeKind.TRIANGLE:
        return
    if kind in (ShapeKind.CIRCLE, ShapeKind.DOT):
        height = width
    shape = Shape("s", kind, 10.0, 20.0, width, height, "data")
    commands = shape_path(shape)
    assert commands[0][0] == "M"
    assert commands[-1] == ("Z", ())
    assert around(flatten(commands)) == pytest.approx(shape.box)


def test_a_circle_stays_at_its_radius() -> None:
    points = flatten(
        shape_path(Shape("s", ShapeKind.CIRCLE, 0.0, 0.0, 54.0, 54.0, "data")), steps=50
    )
    # Four cubic curves miss a circle by less than 0.03 % of the radius.
    assert all(abs(math.hypot(x, y) - 27) < 27 * 3e-4 for x, y in points)


@given(angle=st.floats(-360, 360))
def test_the_tip_of_a_triangle_points_along_its_angle(angle: float) -> None:
    tip, *others = corners(
        Shape("s", ShapeKind.TRIANGLE, 3.0, 4.0, 54.0, 54.0, "data", angle=angle)
    )
    direction = (math.cos(math.radians(angle)), math.sin(math.radians(angle)))
    reach = math.dist(tip, (3, 4))
    assert tip == pytest.approx((3.0 + reach * direction[0], 4.0 + reach * direction[1]))
    assert [math.dist(other, (3, 4)) for other in others] == pytest.approx([reach, reach])


def test_corners_are_rounded_by_kind_and_never_more_than_half() -> None:
    radii = {
        kind: corner_radius(Shape("s", kind, 0.0, 0.0, 54.0, 54.0, "data"))
        for kind in (ShapeKind.SQUARE, ShapeKind.FRAME, ShapeKind.PILL, ShapeKind.DIAMOND)
    }
    assert list(radii.values()) == [9.0, 14.0, 27.0, 0.0]
    assert corner_radius(Shape("s", ShapeKind.FRAME, 0.0, 0.0, 100.0, 20.0, "barrier")) == 10.0
    assert corner_radius(Shape("s", ShapeKind.SQUARE, 0.0, 0.0, 20.0, 20.0, "data")) == 5.0


def test_a_wire_keeps_its_ends_and_cuts_its_corners() -> None:
    wire = Wire("w", ((0.0, 0.0), (100.0, 0.0), (100.0, 50.0)), "wire-rank", corner_radius=16.0)
    assert wire_path(wire) == (
        ("M", (0.0, 0.0)),
        ("L", (84.0, 0.0)),
        ("Q", (100.0, 0.0, 100.0, 16.0)),
        ("L", (100.0, 50.0)),
    )


def test_a_corner_takes_at_most_half_of_a_short_piece() -> None:
    wire = Wire("w", ((0.0, 0.0), (100.0, 0.0), (100.0, 10.0), (200.0, 10.0)), "wire-rank")
    assert wire_path(wire)[2] == ("Q", (100.0, 0.0, 100.0, 5.0))


def test_points_that_repeat_are_drawn_once() -> None:
    wire = Wire("w", ((0.0, 0.0), (0.0, 0.0), (50.0, 0.0), (50.0, 0.0)), "wire-rank")
    assert wire_path(wire) == (("M", (0.0, 0.0)), ("L", (50.0, 0.0)))


def test_a_curve_is_one_cubic() -> None:
    wire = Wire("w", ((0.0, 0.0), (1.0, 2.0), (3.0, 4.0), (5.0, 6.0)), "wire-rank", is_curve=True)
    assert wire_path(wire) == (("M", (0.0, 0.0)), ("C", (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)))


def test_the_view_box_adds_the_margin() -> None:
    scene = Scene(
        "s", shapes=(Shape("a", ShapeKind.SQUARE, 0.0, 0.0, 20.0, 10.0, "data"),), margin=3.0
    )
    assert view_box(scene) == (-13, -8, 13, 8)
