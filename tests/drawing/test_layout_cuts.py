import math

import pytest

from rankscope.diagrams.families import cp, multi_head, tensor_train, with_batch
from rankscope.drawing import View, lay_out, lint
from rankscope.drawing.layout import place
from rankscope.errors import LayoutError


def test_every_cut_index_has_one_bold_stroke_across_its_wire() -> None:
    scene = lay_out(tensor_train(order=5), view=View(cut=("r2", "i5")))
    strokes = [wire for wire in scene.wires if wire.style == "cut"]
    assert [stroke.name for stroke in strokes] == ["r2", "i5"]
    for stroke in strokes:
        own = next(w for w in scene.wires if w.name == stroke.name and w.style != "cut")
        (x0, y0), (x1, y1) = stroke.points
        (a0, b0), (a1, b1) = own.points
        assert (x1 - x0) * (a1 - a0) + (y1 - y0) * (b1 - b0) == pytest.approx(0.0)
        assert math.dist(*stroke.points) == pytest.approx(36.0)
        assert stroke.width > own.width
    assert lint(scene) == ()


def test_a_hyperedge_is_cut_at_its_dot() -> None:
    scene = lay_out(cp(order=3), view=View(cut=("r",)))
    stroke = next(wire for wire in scene.wires if wire.style == "cut")
    (x0, y0), (x1, y1) = stroke.points
    dot = scene.marks[0]
    assert ((x0 + x1) / 2, (y0 + y1) / 2) == pytest.approx((dot.x, dot.y))
    assert lint(scene) == ()


def test_a_cut_does_not_move_anything() -> None:
    diagram = tensor_train(order=4)
    assert place(diagram, view=View(cut=("r1",))) == place(diagram)


def test_an_index_on_a_plate_has_no_wire_to_cut() -> None:
    scene = lay_out(with_batch(multi_head()), view=View(cut=("b",)))
    assert not any(wire.style == "cut" for wire in scene.wires)


def test_a_cut_through_an_unknown_index_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"View.cut names 'z', .* its indices are: i1, i2, r1."):
        lay_out(tensor_train(order=2), view=View(cut=("z",)))
