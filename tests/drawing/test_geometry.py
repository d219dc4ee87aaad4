import math
from dataclasses import replace

import pytest

from rankscope.drawing import Label, Scene, Shape, ShapeKind, Wire, crossings, lint, place_label


def test_nothing_is_wrong_with_the_gallery(gallery: Scene) -> None:
    assert lint(gallery) == ()


def test_nothing_is_wrong_with_an_empty_picture() -> None:
    assert lint(Scene("empty")) == ()
    assert crossings(Scene("empty")) == 0


def test_lint_does_not_depend_on_where_the_picture_is(gallery: Scene) -> None:
    spoilt = replace(gallery, marks=())
    assert lint(spoilt.shifted(-731.5, 402.25)) == lint(spoilt)
    assert len(lint(spoilt)) > 0


def test_lint_tells_of_labels_shapes_wires_tips_and_the_view_box() -> None:
    tensor = Shape("A", ShapeKind.CIRCLE, 0.0, 0.0, 54.0, 54.0, "data")
    stray = Wire("k", ((-90.0, 10.0), (90.0, 10.0)), "wire-rank")
    ragged = (
        Wire("i", ((0.0, -9.0), (80.0, -9.0)), "wire-rank", ends=("A",)),
        Wire("j", ((0.0, 0.0), (70.0, 0.0)), "wire-rank", ends=("A",)),
    )
    label = place_label("$k$", (0.0, 0.0), size=20.0, style="wire-rank")
    scene = Scene(
        "s",
        shapes=(tensor, replace(tensor, name="B", x=20.0)),
        wires=(replace(stray, ends=("B",)), *(replace(w, ends=("A", "B")) for w in ragged)),
        labels=(label,),
        margin=0.0,
    )
    found = "\n".join(lint(scene))
    assert "Label '$k$' lies over tensor 'A'." in found
    assert "Tensor 'A' lies over tensor 'B'." in found
    assert "Wire 'k' runs through tensor 'A', where it does not end." in found
    assert "The tips of 'i' (x = 80.0) and 'j' (x = 70.0) on the right do not share one x." in found
    assert "Wire 'k' reaches 1.2 px out of the view box." in found


def test_places_that_are_not_finite_are_reported_alone() -> None:
    nan, infinity = float("nan"), float("inf")
    shape = Shape("A", ShapeKind.CIRCLE, nan, 0.0, 54.0, 54.0, "data")
    wire = Wire("i", ((0.0, 0.0), (infinity, 0.0)), "wire-rank")
    label = Label("$i$", nan, 0.0, 20.0, "wire-rank", (0.0, 0.0, 1.0, 1.0))
    found = lint(Scene("nowhere", shapes=(shape,), wires=(wire,), labels=(label,)))
    assert [message.split(" has a place")[0] for message in found] == [
        "Shape 'A'",
        "Wire 'i'",
        "Label '$i$'",
    ]


def test_two_wires_that_weave_cross_as_often_as_they_change_sides() -> None:
    straight = Wire("i", ((0.0, 0.0), (400.0, 0.0)), "wire-rank")
    zigzag = tuple((50.0 + 100.0 * step, 30.0 * (-1) ** step) for step in range(4))
    assert crossings(Scene("s", wires=(straight, Wire("j", zigzag, "wire-head")))) == 3


def test_a_crossing_at_a_corner_of_a_wire_counts_once() -> None:
    bent = Wire("i", ((0.0, 0.0), (50.0, 50.0), (100.0, 0.0)), "wire-rank", corner_radius=0.0)
    down = Wire("j", ((50.0, 0.0), (50.0, 100.0)), "wire-rank")
    assert crossings(Scene("s", wires=(bent, down))) == 1


def test_wires_that_meet_in_a_dot_do_not_cross() -> None:
    dot = Shape("d", ShapeKind.DOT, 0.0, 0.0, 11.0, 11.0, "junction-rank")
    ends = ((90.0, 0.0), (-90.0, 5.0), (0.0, 90.0))
    wires = tuple(Wire("r", ((0.0, 0.0), end), "wire-rank", ends=("d",)) for end in ends)
    assert crossings(Scene("s", marks=(dot,), wires=wires)) == 0


@pytest.mark.parametrize("turn", range(8))
def test_wires_that_begin_at_one_point_do_not_cross(turn: int) -> None:
    far = [
        (90.0 * math.cos(angle), 90.0 * math.sin(angle))
        for angle in (math.pi * turn / 4, math.pi * turn / 4 + 1.0, math.pi * turn / 4 + 2.5)
    ]
    wires = tuple(Wire("r", ((0.0, 0.0), end), "wire-rank") for end in far)
    backwards = tuple(Wire("r", (end, (0.0, 0.0)), "wire-rank") for end in far)
    assert crossings(Scene("s", wires=wires)) == 0
    assert crossings(Scene("s", wires=backwards)) == 0
    assert crossings(Scene("s", wires=(wires[0], backwards[1], wires[2]))) == 0


def test_wires_that_cross_under_a_tensor_they_end_on_do_not_count() -> None:
    tensor = Shape("A", ShapeKind.CIRCLE, 0.0, 0.0, 54.0, 54.0, "data")
    first = Wire("i", ((-10.0, -10.0), (90.0, 90.0)), "wire-rank", ends=("A",))
    second = Wire("j", ((-10.0, 10.0), (90.0, -90.0)), "wire-rank", ends=("A",))
    assert crossings(Scene("s", shapes=(tensor,), wires=(first, second))) == 0
    strangers = (replace(first, ends=()), replace(second, ends=()))
    assert crossings(Scene("s", shapes=(tensor,), wires=strangers)) == 1
