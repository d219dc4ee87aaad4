from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from rankscope.diagrams import Diagram, Index, Node, plan_contraction
from rankscope.diagrams.families import build_family
from rankscope.drawing import (
    DrawnSequence,
    Hints,
    Point,
    Scene,
    Side,
    View,
    Wire,
    draw_sequence,
    frame_sequences,
    lint,
)

SETTINGS: dict[str, dict[str, str | int]] = {
    "matrix-product": {"I": 2, "J": 3, "K": 4},
    "tensor-train": {"order": 5, "size": 4, "rank": 2},
    "tensor-ring": {"order": 5, "size": 4, "rank": 2},
    "cp of order 4": {"order": 4, "size": 4, "rank": 2},
    "hierarchical-tucker": {"order": 4, "size": 4, "rank": 2},
    "tucker2-conv": {
        "S": 6, "T": 5, "k": 3, "R1": 2, "R2": 2, "H": 8, "W": 8, "stride": 1, "padding": 1, "B": 2
    },
    "single-head": {"N": 5, "M": 6, "F": 8, "D": 4},
    "multi-head": {"N": 5, "M": 6, "F": 8, "H": 3, "D": 4},
    "mlp": {"widths": "7,5,3", "B": 2},
}  # fmt: skip


def family(name: str) -> Diagram:
    diagram = build_family(name.partition(" ")[0], dict(SETTINGS[name]))
    assert isinstance(diagram, Diagram)
    return diagram


@cache
def drawn(name: str) -> DrawnSequence:
    (sequence,) = frame_sequences(family(name), plan_contraction)
    return draw_sequence(sequence)


def centres(scene: Scene) -> dict[str, Point]:
    return {shape.name: (shape.x, shape.y) for shape in scene.shapes}


def tip(scene: Scene, index: str) -> Point:
    """The end of an open leg that is on no tensor."""

    def is_loose(point: Point) -> bool:
        solid = (*scene.shapes, *scene.marks)
        return not any(shape.covers(point, margin=2.0) for shape in solid)

    wires: list[Wire] = [wire for wire in scene.wires if wire.name == index]
    (found,) = {p for wire in wires for p in (wire.points[0], wire.points[-1]) if is_loose(p)}
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_only_what_merges_moves_and_every_picture_is_faultless(name: str) -> None:
    scenes, frames = drawn(name).scenes, drawn(name).sequence.frames
    assert len(scenes) == len(frames)
    for (before, after), frame in zip(pairwise(scenes), frames[1:], strict=True):
        old, new = centres(before), centres(after)
        for part in new:
            if part != frame.result:
                assert new[part] == old[part], part
        assert frame.result in new
    for scene in scenes:
        assert lint(scene) == ()


@pytest.mark.parametrize("name", ["tensor-train", "single-head", "multi-head", "tucker2-conv"])
def test_tips_never_move(name: str) -> None:
    found = drawn(name).scenes
    for index in family(name).output:
        first = tip(found[0], index)
        for scene in found[1:]:
            assert tip(scene, index) == pytest.approx(first)


def test_tensors_of_one_row_meet_at_their_mean() -> None:
    before, after = drawn("matrix-product").scenes
    left, right = before.shapes
    (result,) = after.shapes
    assert result.y == left.y == right.y
    assert result.x == pytest.approx((left.x + right.x) / 2, abs=0.1)


def test_a_barrier_shrinks_with_its_content_and_vanishes_with_it() -> None:
    found = drawn("single-head").scenes
    widths = [[frame.width for frame in scene.frames if frame.name == "A"] for scene in found]
    sizes = [width[0] for width in widths if width]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]
    assert widths[4:] == [[], [], []]


def test_a_leg_whose_tensor_left_its_row_turns_a_corner() -> None:
    last = drawn("multi-head").scenes[-1]
    (leg,) = [wire for wire in last.wires if wire.name == "n"]
    for (x0, y0), (x1, y1) in pairwise(leg.points):
        assert x0 == pytest.approx(x1) or y0 == pytest.approx(y1)


def test_in_a_large_picture_tensors_meet_at_their_mean_without_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Eleven cores and eleven legs are more than the limit; nothing may be scored then.
    monkeypatch.setattr("rankscope.drawing.animation.lint", None)
    train = build_family("tensor-train", {"order": 11, "size": 2, "rank": 2})
    (sequence,) = frame_sequences(train, plan_contraction)
    before, after = draw_sequence(replace(sequence, frames=sequence.frames[:2])).scenes
    merged = [centres(before)[name] for name in sequence.frames[1].merged]
    x, y = centres(after)[sequence.frames[1].result]
    assert x == pytest.approx(sum(point[0] for point in merged) / 2, abs=0.1)
    assert y == merged[0][1]


def test_legs_of_a_comb_fan_out() -> None:
    for scene in drawn("tensor-train").scenes:
        legs = [wire for wire in scene.wires if wire.name.startswith("i")]
        assert len(legs) == 5
        assert {len(wire.points) for wire in legs} == {2}


def test_what_is_left_in_a_barrier_stands_in_line_with_the_dot_outside() -> None:
    scores = drawn("multi-head").scenes[3]
    (dot,) = [mark for mark in scores.marks if mark.style == "junction-head"]
    (inside,) = [shape for shape in scores.shapes if shape.name == "T3"]
    assert inside.x == pytest.approx(dot.x)


def test_hints_hold_for_the_whole_story() -> None:
    (sequence,) = frame_sequences(family("matrix-product"), plan_contraction)
    for scene in draw_sequence(sequence, Hints(legs={"k": Side.DOWN})).scenes:
        assert tip(scene, "k")[1] > max(shape.y for shape in scene.shapes)


def test_a_cut_is_shown_as_long_as_its_index_is_there() -> None:
    indices = tuple(Index(name, 2) for name in "ijk")
    nodes = (Node("A", ("i", "j")), Node("B", ("j", "k")))
    (sequence,) = frame_sequences(Diagram("product", indices, nodes, ("i", "k")), plan_contraction)
    before, after = draw_sequence(sequence, view=View(cut=("j",))).scenes
    assert "cut" in styles(before)
    assert "cut" not in styles(after)


def styles(scene: Scene) -> set[str]:
    return {mark.style for mark in scene.marks} | {wire.style for wire in scene.wires}
