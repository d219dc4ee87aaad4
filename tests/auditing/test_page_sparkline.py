import re

import pytest

from rankscope.auditing.page.charts import HEIGHT, NUM_POINTS, WIDTH, sparkline


def points(svg: str) -> list[tuple[float, float]]:
    path = re.findall(r'd="M([^"]+)"', svg)[0]
    return [(float(x), float(y)) for x, y in (point.split() for point in path.split("L"))]


def test_a_falling_spectrum_falls_from_the_left_top_to_the_right() -> None:
    found = points(sparkline(tuple(10.0 ** (-place / 100) for place in range(101))))
    assert len(found) == NUM_POINTS
    assert found[0] == (1, 1)
    # One decade of two: half of the height.
    assert found[-1] == (WIDTH - 1, HEIGHT / 2)
    assert found == sorted(found)


def test_zeros_lie_on_the_ground() -> None:
    assert points(sparkline((1.0, 0.0)))[-1] == (WIDTH - 1, HEIGHT - 1)


def test_one_value_is_a_dot() -> None:
    assert points(sparkline((3.0,))) == [(1, 1), (1, 1)]


@pytest.mark.parametrize("values", [(), (0.0, 0.0), (float("nan"),), (float("inf"), 1.0)])
def test_where_there_is_nothing_to_draw_nothing_is_drawn(values: tuple[float, ...]) -> None:
    assert sparkline(values) == ""
