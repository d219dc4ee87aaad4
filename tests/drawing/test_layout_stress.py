import cmath
import math

import pytest

from rankscope.diagrams import from_einsum
from rankscope.drawing import Point
from rankscope.drawing.layout import Dot, End, Mesh, NodeEnd, Tip, Wiring, place_by_stress
from rankscope.drawing.layout.mesh import CLOSEST_ON_GRID

NETWORKS = [
    "abc,cde,bfg,gdh,eij,hik,fkl->ajl",
    "ab,bcd,bef,dfg,gh,eh->ach",
    "abc,ade,bdf,cef->",
    "ab,bc,cd,de,ef,fa,ad->",
]


@pytest.mark.parametrize("equation", NETWORKS)
def test_no_two_tensors_come_too_near(equation: str) -> None:
    for placement in place_by_stress(Mesh(Wiring(from_einsum(equation))), {}):
        points = list(placement.nodes.values())
        apart = [math.dist(a, b) for k, a in enumerate(points) for b in points[:k]]
        assert min(apart) > CLOSEST_ON_GRID


@pytest.mark.parametrize("equation", NETWORKS)
def test_the_picture_is_wider_than_high_and_starts_on_the_left(equation: str) -> None:
    diagram = from_einsum(equation)
    placement = list(place_by_stress(Mesh(Wiring(diagram)), {}))[-1]
    xs = [x for x, _ in placement.nodes.values()]
    ys = [y for _, y in placement.nodes.values()]
    assert max(xs) - min(xs) > 0.75 * (max(ys) - min(ys))
    assert placement.nodes[diagram.nodes[0].name][0] <= placement.nodes[diagram.nodes[-1].name][0]


@pytest.mark.parametrize("equation", NETWORKS)
def test_no_turn_makes_the_wires_more_level_and_upright(equation: str) -> None:
    """The sum of exp(4i angle) over all wires is real and positive: its real part is largest."""
    wiring = Wiring(from_einsum(equation))
    placement = list(place_by_stress(Mesh(wiring), {}))[-1]
    at: dict[End, Point] = {NodeEnd(name): point for name, point in placement.nodes.items()}
    at |= {Dot(*key): point for key, point in placement.dots.items()}
    total = 0j
    for segment in wiring.segments:
        if not isinstance(segment.second, Tip):
            (x0, y0), (x1, y1) = (at[end] for end in segment.ends)
            total += cmath.exp(4j * math.atan2(y1 - y0, x1 - x0))
    assert abs(cmath.phase(total)) < 1e-6


def test_a_ladder_comes_out_straight() -> None:
    """Turning the picture makes the bonds of a regular network level and upright."""
    equation = "ab,acd,cef,eg,bh,hdi,ifj,jg->"
    placement = next(place_by_stress(Mesh(Wiring(from_einsum(equation))), {}))
    assert len({y for _, y in placement.nodes.values()}) == 2
    assert len({x for x, _ in placement.nodes.values()}) == 4
