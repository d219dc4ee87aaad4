from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing.plane import Box, place_labels

FRAME = Box(0.0, 0.0, 1000.0, 800.0)
COORDINATE = st.floats(300.0, 500.0)


@settings(deadline=None)
@given(points=st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=6))
def test_labels_lie_on_no_other_on_no_point_and_inside(points: list[tuple[float, float]]) -> None:
    places = place_labels(points, [(60.0, 12.0)] * len(points), FRAME, gap=8.0)
    for first, second in combinations(places, 2):
        assert first.overlap([second]) < 1e-6
    for place in places:
        assert place.outside(FRAME) < 1e-6
        for x, y in points:
            assert place.nearest(x, y) != (x, y)


def test_labels_turn_away_from_the_edge_and_from_obstacles() -> None:
    wall = [Box(0.0, 405.0, 1000.0, 800.0)]
    (place,) = place_labels([(995.0, 400.0)], [(60.0, 12.0)], FRAME, gap=8.0, obstacles=wall)
    assert place.right < 995
    assert place.top <= 405


def test_without_room_the_least_bad_place_is_taken() -> None:
    (place,) = place_labels([(5.0, 5.0)], [(60.0, 12.0)], Box(0.0, 0.0, 10.0, 10.0), gap=8.0)
    assert place.outside(Box(0.0, 0.0, 10.0, 10.0)) > 0
