import numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.constructions.regions import Polygon, split

SQUARE = Polygon(((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)), (-1, -1, -1, -1))


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(-1, 1)] * 3), max_size=6))
def test_cutting_keeps_the_area_and_puts_each_part_on_its_side(
    lines: list[tuple[float, float, float]],
) -> None:
    polygons = [SQUARE]
    for number, (a, b, c) in enumerate(lines):
        following: list[Polygon] = []
        for polygon in polygons:
            values = [a * x + b * y + c for x, y in polygon.vertices]
            parts = split(polygon, values, 1e-12, number)
            if parts is not None:
                for part, sign in zip(parts, (1, -1), strict=True):
                    assert all(sign * (a * x + b * y + c) >= -1e-9 for x, y in part.vertices)
                    assert number in part.cuts
            following.extend(parts or (polygon,))
        polygons = following
    numpy.testing.assert_allclose(sum(polygon.area for polygon in polygons), 1.0, atol=1e-9)


def test_an_edge_remembers_its_cut() -> None:
    left, right = split(SQUARE, [0.5 - x for x, _ in SQUARE.vertices], 1e-12, 7) or (SQUARE, SQUARE)
    for part in (left, right):
        assert len(part.vertices) == 4
        place = part.cuts.index(7)
        ends = part.vertices[place], part.vertices[(place + 1) % 4]
        assert {end[0] for end in ends} == {0.5}
        assert sorted(part.cuts) == [-1, -1, -1, 7]


def test_a_diagonal_cut_through_corners_makes_triangles() -> None:
    parts = split(SQUARE, [x - y for x, y in SQUARE.vertices], 1e-12, 3)
    assert parts is not None
    assert [len(part.vertices) for part in parts] == [3, 3]
    assert all(sorted(part.cuts) == [-1, -1, 3] for part in parts)


def test_a_line_along_an_edge_cuts_nothing() -> None:
    assert split(SQUARE, [x for x, _ in SQUARE.vertices], 1e-12, 0) is None


def test_the_inner_radius_is_no_larger_than_that_of_the_inscribed_circle() -> None:
    assert SQUARE.area == 1.0
    assert SQUARE.inner_radius == 0.25
