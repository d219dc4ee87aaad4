from dataclasses import replace

from rankscope.drawing import Picture, Scene, Shape, ShapeKind, Wire, check_wires


def circle(name: str, x: float, y: float) -> Shape:
    return Shape(name, ShapeKind.CIRCLE, x, y, 54.0, 54.0, "parameter")


def found(scene: Scene) -> list[str]:
    return list(check_wires(Picture(scene)))


ACROSS = Wire("i", ((-100.0, 0.0), (100.0, 0.0)), "wire-rank")
BARRIER = Shape("A", ShapeKind.FRAME, 0.0, 0.0, 100.0, 100.0, "barrier")


def test_a_wire_through_a_tensor_it_does_not_end_on_is_reported() -> None:
    scene = Scene("s", shapes=(circle("A", 0.0, 0.0),), wires=(ACROSS,))
    assert found(scene) == ["Wire 'i' runs through tensor 'A', where it does not end."]
    assert found(replace(scene, wires=(replace(ACROSS, ends=("A",)),))) == []


def test_a_wire_through_a_foreign_dot_is_reported() -> None:
    dot = Shape("dot", ShapeKind.DOT, 0.0, 3.0, 11.0, 11.0, "junction-rank")
    assert found(Scene("s", marks=(dot,), wires=(ACROSS,))) == [
        "Wire 'i' runs through mark 'dot', where it does not end."
    ]


def test_a_wire_that_passes_a_tensor_by_is_fine() -> None:
    scene = Scene("s", shapes=(circle("A", 0.0, 29.0),), wires=(ACROSS,))
    assert found(scene) == []


def test_a_cut_may_lie_over_anything() -> None:
    scene = Scene("s", shapes=(circle("A", 0.0, 0.0),), wires=(replace(ACROSS, style="cut"),))
    assert found(scene) == []


def test_wires_of_two_indices_on_one_line_are_reported_with_the_length_they_share() -> None:
    other = Wire("j", ((40.0, 0.0), (300.0, 0.0)), "wire-rank")
    assert found(Scene("s", wires=(ACROSS, other))) == ["Wire 'i' runs along wire 'j' for 60 px."]


def test_wires_of_one_index_may_run_together() -> None:
    other = Wire("i", ((40.0, 0.0), (300.0, 0.0)), "wire-rank")
    assert found(Scene("s", wires=(ACROSS, other))) == []


def test_wires_that_cross_do_not_run_along_each_other() -> None:
    other = Wire("j", ((0.0, -100.0), (0.0, 100.0)), "wire-rank")
    assert found(Scene("s", wires=(ACROSS, other))) == []


def test_wires_that_share_a_line_under_a_tensor_of_theirs_are_fine() -> None:
    tensor = circle("A", 0.0, 0.0)
    first = Wire("i", ((0.0, 0.0), (20.0, 0.0), (20.0, 90.0)), "wire-rank", ends=("A",))
    second = Wire("j", ((0.0, 0.0), (90.0, 0.0)), "wire-rank", ends=("A",))
    assert found(Scene("s", shapes=(tensor,), wires=(first, second))) == []


def test_parallel_wires_that_are_apart_are_fine() -> None:
    other = Wire("j", ((-100.0, 6.0), (100.0, 6.0)), "wire-rank")
    assert found(Scene("s", wires=(ACROSS, other))) == []


def test_a_wire_through_a_barrier_crosses_it_twice() -> None:
    scene = Scene("s", frames=(BARRIER,), wires=(ACROSS,))
    assert found(scene) == ["Wire 'i' crosses barrier 'A' 2 times, not once."]
    assert found(replace(scene, frames=(replace(BARRIER, style="plate"),))) == []


def test_two_wires_of_one_index_out_of_a_barrier_count_together() -> None:
    up = Wire("h", ((0.0, 0.0), (0.0, -100.0)), "wire-head")
    down = Wire("h", ((0.0, 0.0), (0.0, 100.0)), "wire-head")
    assert found(Scene("s", frames=(BARRIER,), wires=(up,))) == []
    assert found(Scene("s", frames=(BARRIER,), wires=(up, down))) == [
        "Wire 'h' crosses barrier 'A' 2 times, not once."
    ]
