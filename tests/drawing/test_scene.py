import math

import pytest

from rankscope.drawing import Label, Scene, Shape, ShapeKind, Wire, around, union


def shape(kind: ShapeKind) -> Shape:
    return Shape("s", kind, 10.0, 20.0, 8.0, 4.0, "data")


def test_the_box_of_a_scene_holds_every_layer() -> None:
    scene = Scene(
        "s",
        shapes=(shape(ShapeKind.SQUARE),),
        wires=(Wire("w", ((0.0, 0.0), (5.0, 0.0)), "wire-rank"),),
        labels=(Label("$x$", 30.0, 30.0, 20.0, "caption", (30.0, 25.0, 40.0, 31.0)),),
    )
    assert scene.box == (0.0, 0.0, 40.0, 31.0)
    assert scene.shifted(1.0, 2.0).box == (1.0, 2.0, 41.0, 33.0)
    assert scene.joined([scene.shifted(100.0, 0.0)]).box == (0.0, 0.0, 140.0, 31.0)


def test_an_empty_scene_has_an_empty_box() -> None:
    assert Scene("s").box == (0.0, 0.0, 0.0, 0.0)
    assert union([]) == (0.0, 0.0, 0.0, 0.0)
    assert around([(1.0, 2.0), (-1.0, 5.0)]) == (-1.0, 2.0, 1.0, 5.0)


@pytest.mark.parametrize(
    ("kind", "inside", "outside"),
    [
        (ShapeKind.SQUARE, (13.9, 21.9), (14.1, 20.0)),
        (ShapeKind.CIRCLE, (13.9, 20.0), (13.0, 23.0)),
        (ShapeKind.DIAMOND, (11.9, 20.9), (13.0, 21.0)),
    ],
)
def test_a_shape_covers_its_inside(
    kind: ShapeKind, inside: tuple[float, float], outside: tuple[float, float]
) -> None:
    assert shape(kind).covers(inside)
    assert not shape(kind).covers(outside)


def test_samples_of_a_line_are_evenly_spaced_from_end_to_end() -> None:
    wire = Wire("w", ((0.0, 0.0), (3.0, 0.0), (3.0, 4.0)), "wire-rank")
    samples = wire.samples(7)
    assert samples[0] == (0.0, 0.0)
    assert samples[-1] == pytest.approx((3.0, 4.0))
    assert samples[3] == pytest.approx((3.0, 0.0))


def test_samples_of_a_curve_start_and_end_at_its_ends() -> None:
    wire = Wire("w", ((0.0, 0.0), (0.0, 4.0), (4.0, 4.0), (4.0, 0.0)), "wire-rank", is_curve=True)
    samples = wire.samples(10)
    assert samples[0] == (0.0, 0.0)
    assert samples[-1] == (4.0, 0.0)
    assert math.isclose(samples[5][0], 2.0)
    assert math.isclose(samples[5][1], 3.0)
