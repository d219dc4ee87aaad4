import pytest

from rankscope.diagrams import from_einsum
from rankscope.diagrams.families import grouped_query
from rankscope.drawing import lay_out
from rankscope.drawing.layout import NodeEnd, Placement, Route, Wiring, place_wiring, spread_ports
from rankscope.drawing.layout.routes import over_lane
from rankscope.drawing.layout.routing import SPACING


def starts(depth: dict[str, float], *, sign: float) -> dict[str, float]:
    """Where wires a and b leave A, if they run along lanes so far below it."""
    wiring = Wiring(from_einsum("ab,a,b->"))
    at = {"A": (0.0, 0.0), "B": (3.0 * sign, 0.0), "C": (5.0 * sign, 0.0)}
    placed = place_wiring(wiring, Placement(at))
    routes = {
        segment: over_lane(
            placed.centres[segment.first], placed.centres[segment.second], depth[segment.index]
        )
        for segment in wiring.segments
    }
    moved = spread_ports(placed, routes)
    return {segment.index: route.points[0][0] for segment, route in moved.items()}


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_of_wires_that_turn_the_same_way_the_deeper_one_leaves_on_the_far_side(
    sign: float,
) -> None:
    found = starts({"a": 60.0, "b": 100.0}, sign=sign)
    assert found == {
        "a": pytest.approx(SPACING / 2 * sign),
        "b": pytest.approx(-SPACING / 2 * sign),
    }


def test_a_wire_that_leaves_alone_stays_in_the_middle() -> None:
    assert starts({"a": 60.0, "b": -60.0}, sign=1.0) == {"a": 0.0, "b": 0.0}


def test_a_straight_wire_between_tensors_stays_straight() -> None:
    scene = lay_out(grouped_query())
    straight = next(wire for wire in scene.wires if wire.name == "q")
    (x0, _), (x1, _) = straight.points
    assert x0 == x1
    assert abs(x0 - next(shape.x for shape in scene.shapes if shape.name == "WQ")) == 9.0


def test_a_straight_wire_to_a_tip_stays_in_the_middle() -> None:
    wiring = Wiring(from_einsum("ab,b->a"))
    placed = place_wiring(
        wiring, Placement({"A": (0.0, 0.0), "B": (3.0, 0.0)}, tips={"a": (0.0, 1.0)})
    )
    routes = {
        segment: Route(((0.0, 0.0), (0.0, 96.0)))
        if segment.index == "a"
        else over_lane((0.0, 0.0), (288.0, 0.0), 60.0)
        for segment in wiring.segments
    }
    moved = spread_ports(placed, routes)
    offsets = {segment.index: route.points[0][0] for segment, route in moved.items()}
    assert offsets == {"a": 0.0, "b": SPACING}
    assert all(segment.first == NodeEnd("A") for segment in moved)
