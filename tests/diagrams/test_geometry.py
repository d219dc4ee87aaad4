from dataclasses import replace

from rankscope.diagrams.geometry import crossings, lint
from rankscope.diagrams.scene import Label, Scene, Shape, ShapeKind, Wire


def test_nothing_is_wrong_with_the_gallery(gallery: Scene) -> None:
    assert lint(gallery) == ()


def test_nothing_is_wrong_with_an_empty_picture() -> None:
    assert lint(Scene("empty")) == ()
    assert crossings(Scene("empty")) == 0


def test_lint_does_not_depend_on_where_the_picture_is(gallery: Scene) -> None:
    spoilt = replace(gallery, marks=())
    assert lint(spoilt.shifted(-731.5, 402.25)) == lint(spoilt)
    assert len(lint(spoilt)) > 0


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


def test_wires_that_cross_under_a_tensor_they_end_on_do_not_count() -> None:
    tensor = Shape("A", ShapeKind.CIRCLE, 0.0, 0.0, 54.0, 54.0, "data")
    first = Wire("i", ((-10.0, -10.0), (90.0, 90.0)), "wire-rank", ends=("A",))
    second = Wire("j", ((-10.0, 10.0), (90.0, -90.0)), "wire-rank", ends=("A",))
    assert crossings(Scene("s", shapes=(tensor,), wires=(first, second))) == 0
    strangers = (replace(first, ends=()), replace(second, ends=()))
    assert crossings(Scene("s", shapes=(tensor,), wires=strangers)) == 1
