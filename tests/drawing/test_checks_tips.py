from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.drawing import Picture, Scene, Shape, ShapeKind, Wire, check_tips
from rankscope.drawing.checks import sideways_tips


def picture(*tips: tuple[float, float]) -> Scene:
    """A tensor for every tip, on a line from top to bottom, their legs to the left or right."""
    shapes, wires = [], []
    for place, tip in enumerate(tips):
        name = f"T{place}"
        shapes.append(Shape(name, ShapeKind.CIRCLE, 0.0, tip[1], 54.0, 54.0, "data"))
        wires.append(Wire(f"leg{place}", ((0.0, tip[1]), tip), "wire-rank", ends=(name,)))
        if place:
            ends = (f"T{place - 1}", name)
            bond = ((0.0, tips[place - 1][1]), (0.0, tip[1]))
            wires.append(Wire(f"bond{place}", bond, "wire-rank", ends=ends))
    return Scene("s", shapes=tuple(shapes), wires=tuple(wires))


def found(scene: Scene) -> list[str]:
    return list(check_tips(Picture(scene)))


def test_tips_that_share_one_x_are_fine() -> None:
    assert found(picture((90.0, 0.0), (90.0, 100.0), (-70.0, 200.0))) == []


def test_tips_that_nearly_line_up_are_reported() -> None:
    assert found(picture((-90.0, 0.0), (-80.0, 100.0))) == [
        "The tips of 'leg0' (x = -90.0) and 'leg1' (x = -80.0) on the left do not share one x."
    ]


def test_tips_of_one_tensor_belong_together_wherever_they_leave_it() -> None:
    tensor = Shape("T", ShapeKind.SQUARE, 0.0, 0.0, 54.0, 54.0, "data")
    wires = (
        Wire("i", ((0.0, -9.0), (90.0, -9.0)), "wire-rank", ends=("T",)),
        Wire("j", ((0.0, 9.0), (99.0, 9.0)), "wire-rank", ends=("T",)),
    )
    assert len(found(Scene("s", shapes=(tensor,), wires=wires))) == 1


def test_tips_far_from_each_other_need_not_line_up() -> None:
    assert found(picture((90.0, 0.0), (160.0, 100.0))) == []


@settings(deadline=None)
@given(offset=st.floats(0, 200))
def test_only_distances_between_a_half_and_sixty_pixels_are_ragged(offset: float) -> None:
    scene = picture((90.0, 0.0), (90.0 + offset, 100.0))
    distance = abs(90.0 - (90.0 + offset))
    assert bool(found(scene)) == (0.5 < distance < 60)


def test_tips_on_two_sides_are_not_compared() -> None:
    assert found(picture((40.0, 0.0), (-40.0, 100.0))) == []


def test_tips_of_two_pictures_side_by_side_need_not_line_up() -> None:
    first = picture((90.0, 0.0))
    second = picture((100.0, 400.0))
    assert found(first.joined([second])) == []


def test_tips_joined_through_a_shared_end_are_one_picture() -> None:
    """Without a tensor or a dot, wires that begin at one point still belong together."""
    wires = (
        Wire("i", ((0.0, 0.0), (0.0, 50.0), (90.0, 50.0)), "wire-rank"),
        Wire("j", ((0.0, 0.0), (0.0, -50.0), (99.0, -50.0)), "wire-rank"),
    )
    assert len(found(Scene("s", wires=wires))) == 1


def test_an_end_in_a_tensor_or_a_dot_is_not_a_tip() -> None:
    scene = picture((90.0, 0.0))
    assert [tip.wire for tip in sideways_tips(Picture(scene))] == ["leg0"]
    dot = Shape("sum", ShapeKind.DOT, 90.0, 0.0, 9.0, 9.0, "junction-rank")
    assert sideways_tips(Picture(replace(scene, marks=(dot,)))) == []


def test_an_end_that_points_down_is_not_compared_by_x() -> None:
    wires = (
        Wire("i", ((0.0, 0.0), (10.0, 90.0)), "wire-rank"),
        Wire("j", ((0.0, 0.0), (20.0, 90.0)), "wire-rank"),
    )
    assert sideways_tips(Picture(Scene("s", wires=wires))) == []
