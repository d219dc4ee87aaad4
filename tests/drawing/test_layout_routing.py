import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import from_einsum
from rankscope.drawing import Point
from rankscope.drawing.layout import (
    NodeEnd,
    Placement,
    Route,
    Router,
    Segment,
    Wiring,
    arc,
    bracket,
    loop,
    orthogonal,
    place_wiring,
)
from rankscope.drawing.layout.routes import passes

NUMBERS = st.floats(-500.0, 500.0)
POINTS = st.tuples(NUMBERS, NUMBERS)


def routed(equation: str, **nodes: Point) -> dict[tuple[str, int], Route]:
    wiring = Wiring(from_einsum(equation))
    routes = Router(place_wiring(wiring, Placement(nodes))).run().routes
    return {(segment.index, segment.ordinal): route for segment, route in routes.items()}


@settings(deadline=None)
@given(POINTS, POINTS)
def test_all_ways_lead_from_start_to_end(start: Point, end: Point) -> None:
    for route in (*orthogonal(start, end), bracket(start, end), arc(start, end, 20.0)):
        assert route.points[0] == start
        assert route.points[-1] == end
        assert route.line[0] == pytest.approx(start)
        assert route.line[-1] == pytest.approx(end)


def test_a_bracket_leaves_upright_and_arrives_level() -> None:
    points = bracket((0.0, 0.0), (100.0, 60.0)).points
    assert points[1][0] == points[0][0]
    assert points[2][1] == points[3][1]


@settings(deadline=None)
@given(POINTS, st.floats(10.0, 60.0))
def test_an_arc_is_as_high_as_asked_in_its_middle(end: Point, height: float) -> None:
    route = arc((0.0, 0.0), (end[0] + 1000.0, 0.0), height)
    middle = route.line[len(route.line) // 2]
    assert middle == pytest.approx(((end[0] + 1000.0) / 2, height))


def test_a_loop_leaves_its_tensor_and_comes_back() -> None:
    route = loop((0.0, 0.0), (0.0, -1.0), 27.0)
    assert min(y for _, y in route.line) < -54.0
    assert all(abs(y) < 27.0 for _, y in (route.points[0], route.points[-1]))


def test_a_free_way_is_taken_straight() -> None:
    routes = routed("a,ab,b->", A=(0.0, 0.0), B=(2.0, 0.0), C=(4.0, 0.0))
    assert all(len(route.points) == 2 for route in routes.values())


def test_a_wire_goes_around_what_is_in_its_way() -> None:
    routes = routed("a,b,ab->", A=(0.0, 0.0), B=(2.0, 0.0), C=(4.0, 0.0))
    assert len(routes[("b", 0)].points) == 2
    assert len(routes[("a", 0)].points) == 4
    assert not passes(routes[("a", 0)], (192.0 - 27, -27.0, 192.0 + 27, 27.0), 0.0)


def test_parallel_wires_are_drawn_apart() -> None:
    routes = routed("ab,ba->", A=(0.0, 0.0), B=(2.0, 0.0))
    middles = [route.line[len(route.line) // 2][1] for route in routes.values()]
    assert abs(middles[0] - middles[1]) == pytest.approx(44.0)


def test_loops_of_one_tensor_do_not_coincide() -> None:
    wiring = Wiring(from_einsum("iijj->"))
    routes = Router(place_wiring(wiring, Placement({"A": (0.0, 0.0)}))).run().routes
    first, second = routes.values()
    assert first.points != second.points
    assert list(routes) == [
        Segment("i", NodeEnd("A"), NodeEnd("A")),
        Segment("j", NodeEnd("A"), NodeEnd("A"), 1),
    ]
