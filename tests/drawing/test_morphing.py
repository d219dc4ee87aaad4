from functools import cache
from itertools import pairwise

import pytest

from rankscope.diagrams import Diagram, Index, Node, plan_contraction
from rankscope.diagrams.families import build_family
from rankscope.drawing import (
    Frame,
    Point,
    Scene,
    Shape,
    ShapeKind,
    Wire,
    around,
    draw_sequence,
    frame_sequences,
    morph,
)
from rankscope.drawing.animation import eased

Move = tuple[Scene, Scene, Frame]
ATTENTION = {"N": 5, "M": 6, "F": 8, "H": 3, "D": 4}
CONVOLUTION = {"S": 6, "T": 5, "k": 3, "R1": 2, "R2": 2, "H": 8, "W": 8, "B": 2}


@cache
def moves() -> tuple[Move, ...]:
    """All moves of attention and of a convolution layer."""
    found: list[Move] = []
    for name, settings in (("multi-head", ATTENTION), ("tucker2-conv", CONVOLUTION)):
        diagram = build_family(name, dict(settings))
        assert isinstance(diagram, Diagram)
        (sequence,) = frame_sequences(diagram, plan_contraction)
        triples = zip(pairwise(draw_sequence(sequence).scenes), sequence.frames[1:], strict=True)
        found += [(*pair, frame) for pair, frame in triples if len(frame.merged) > 1]
    return tuple(found)


def test_easing_is_slow_at_both_ends_and_symmetric() -> None:
    assert (eased(0.0), eased(1.0)) == (0.0, 1.0)
    assert eased(0.1) < 0.1
    for share in (0.1, 0.3, 0.45):
        assert eased(share) + eased(1 - share) == pytest.approx(1.0)


def test_nothing_has_moved_at_the_start() -> None:
    for before, after, frame in moves():
        start = morph(before, after, frame, 0.0)
        for layer in ("frames", "shapes", "marks", "labels"):
            assert getattr(start, layer) == getattr(before, layer)
        for old, new in zip(before.wires, start.wires, strict=True):
            assert new.points[0] == pytest.approx(old.points[0])
            assert new.points[-1] == pytest.approx(old.points[-1])
            assert around(new.samples()) == pytest.approx(around(old.samples()), abs=1.0)


def test_merging_tensors_meet_where_the_result_stands() -> None:
    for before, after, frame in moves():
        end = {shape.name: shape for shape in morph(before, after, frame, 1.0).shapes}
        (result,) = [shape for shape in after.shapes if shape.name == frame.result]
        for name in frame.merged:
            assert (end[name].x, end[name].y) == pytest.approx((result.x, result.y))
        labels = [
            label
            for label in morph(before, after, frame, 1.0).labels
            if label.owner in frame.merged
        ]
        assert len(labels) == len(frame.merged)
        for label in labels:
            middle = (label.box[0] + label.box[2]) / 2
            assert abs(middle - result.x) < result.width / 2


def test_wires_that_stay_end_as_they_are_drawn_next() -> None:
    for before, after, frame in moves():
        end = morph(before, after, frame, 1.0)
        for index in {wire.name for wire in after.wires}:
            drawn = around(p for w in after.wires if w.name == index for p in w.samples())
            moved = around(p for w in end.wires if w.name == index for p in w.samples())
            goal = next(shape for shape in after.shapes if shape.name == frame.result)
            # What has no counterpart has gone into the result, and ends inside its outline.
            reach = 2 * goal.width
            assert moved == pytest.approx(drawn, abs=reach), index


def test_bonds_between_merging_tensors_shrink_to_a_point() -> None:
    for before, after, frame in moves():
        kept = {wire.name for wire in after.wires}
        bonds = [wire for wire in before.wires if wire.name not in kept]
        end = morph(before, after, frame, 1.0)
        half = morph(before, after, frame, 0.5)
        assert bonds
        (result,) = [shape for shape in after.shapes if shape.name == frame.result]
        for wire in end.wires:
            if wire.name not in kept and set(wire.ends) <= {*frame.merged}:
                assert {(round(x - result.x), round(y - result.y)) for x, y in wire.points} == {
                    (0, 0)
                }
        names = {wire.name for wire in bonds}
        assert not [label for label in half.labels if label.owner in names]


def test_barriers_and_labels_glide_halfway() -> None:
    before, after, frame = moves()[0]
    half = morph(before, after, frame, 0.5)
    for layer in ("frames", "marks"):
        old = {shape.name: shape for shape in getattr(before, layer)}
        new = {shape.name: shape for shape in getattr(after, layer)}
        for shape in getattr(half, layer):
            if shape.name in new:
                assert shape.x == pytest.approx((old[shape.name].x + new[shape.name].x) / 2)
                assert shape.width == pytest.approx(
                    (old[shape.name].width + new[shape.name].width) / 2
                )


def test_a_wire_that_is_drawn_from_its_other_end_next_does_not_turn_over() -> None:
    def scene(points: tuple[Point, Point], *names: str) -> Scene:
        shapes = [Shape(name, ShapeKind.CIRCLE, 9.0, 0.0, 4.0, 4.0, "data") for name in names]
        ends = ("B", "T") if "T" in names else ("B", "A")
        return Scene(
            "s", wires=(Wire("i", points, "wire-generic", ends=ends),), shapes=tuple(shapes)
        )

    before = scene(((0.0, 0.0), (100.0, 0.0)), "A", "B", "C")
    after = scene(((80.0, 0.0), (20.0, 0.0)), "T", "B")
    frame = Frame(single(), "", "", ("A", "C"), "T")
    (wire,) = morph(before, after, frame, 0.5).wires
    assert wire.points == ((10.0, 0.0), (90.0, 0.0))


def single() -> Diagram:
    return Diagram("one", (Index("i", 2),), (Node("T", ("i",)),), ("i",))
