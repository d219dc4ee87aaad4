import math
from collections.abc import Callable
from itertools import pairwise

import pytest

from rankscope.diagrams import Diagram, from_einsum
from rankscope.diagrams.families import cp, tensor_ring, tensor_train, tucker
from rankscope.drawing.layout import Mesh, Placement, Wiring, place_ring, place_star


def ring(diagram: Diagram) -> Placement | None:
    return place_ring(Mesh(Wiring(diagram)), {})


def star(diagram: Diagram) -> Placement | None:
    return place_star(Mesh(Wiring(diagram)), {})


@pytest.mark.parametrize("order", [3, 4, 7])
def test_all_sides_of_a_ring_are_equally_long(order: int) -> None:
    placement = ring(tensor_ring(order=order))
    assert placement is not None
    points = list(placement.nodes.values())
    sides = [math.dist(a, b) for a, b in zip(points, [*points[1:], points[0]], strict=True)]
    assert sides == pytest.approx([sides[0]] * order)


def test_legs_of_a_ring_point_away_from_its_middle() -> None:
    placement = ring(tensor_ring(order=5))
    assert placement is not None
    for place in range(1, 6):
        (x, y), (tip_x, tip_y) = placement.nodes[f"G{place}"], placement.tips[f"i{place}"]
        assert math.hypot(tip_x, tip_y) > math.hypot(x, y)
        assert x * tip_y - y * tip_x == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    "equation",
    ["ab,ba->", "ab,bc,ca,cd->d", "ab,bc,cd->ad", "ab,ab,bc,ca->", "ab,bc,ca,de,ef,fd->"],
)
def test_what_is_not_one_closed_chain_is_no_ring(equation: str) -> None:
    assert ring(from_einsum(equation)) is None


@pytest.mark.parametrize("family", [cp, tucker])
def test_five_or_more_arms_are_spread_evenly(family: Callable[..., Diagram]) -> None:
    assert star(family(order=4)) is None
    placement = star(family(order=6))
    assert placement is not None
    leaves = [point for point in placement.nodes.values() if math.hypot(*point) > 0.1]
    angles = sorted(math.atan2(y, x) for x, y in leaves)
    assert len(angles) == 6
    steps = [b - a for a, b in pairwise(angles)]
    assert steps == pytest.approx([math.pi / 3] * 5)


def test_many_legs_of_one_tensor_are_spread_evenly() -> None:
    placement = star(from_einsum("abcdefg->abcdefg"))
    assert placement is not None
    angles = [math.atan2(y, x) for x, y in placement.tips.values()]
    turns = sorted(angle % (2 * math.pi) for angle in angles)
    steps = [b - a for a, b in pairwise(turns)]
    assert steps == pytest.approx([2 * math.pi / 7] * 6)


def test_a_chain_is_no_star() -> None:
    assert star(tensor_train(order=6)) is None
