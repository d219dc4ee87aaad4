from pathlib import Path

import numpy
import pytest

from rankscope.constructions.learning import (
    Adam,
    GradientDescent,
    follow,
    gradient_descent,
    least_squares,
)
from rankscope.constructions.pictures import FIRST, SECOND, draw_descent, draw_ways
from rankscope.errors import ConstructionError

PROBLEM = least_squares(numpy.diag([0.5, 1.0]), numpy.zeros(2))
START = numpy.array([3.0, 1.0])


def test_a_run_is_drawn_with_its_bound_where_it_has_one(tmp_path: Path) -> None:
    fast, slow = (
        gradient_descent(PROBLEM, START, rate=share / PROBLEM.smoothness, num_steps=20)
        for share in (2.5, 1.0)
    )
    text = draw_descent({"fast": fast, "slow": slow}, tmp_path / "descent.svg").read_text("utf-8")
    # Gap, legend, and for the second the bound.
    assert text.count(f"stroke: {FIRST.lower()}") == 2
    assert text.count(f"stroke: {SECOND.lower()}") == 3
    assert text.count(f"stroke: {SECOND.lower()}; stroke-width: 1.5") == 2
    assert text.count("stroke-dasharray") >= 2


def test_ways_have_a_dot_for_each_point(tmp_path: Path) -> None:
    ways = {
        "plain": follow(GradientDescent(1.0), PROBLEM.gradient, START, num_steps=7),
        "Adam": follow(Adam(0.3), PROBLEM.gradient, START, num_steps=5),
    }
    text = draw_ways(PROBLEM, ways, tmp_path / "ways.svg").read_text("utf-8")
    dots = [line for line in text.splitlines() if "<use" in line]
    # The points, and a dot in the legend.
    assert sum(f"fill: {FIRST.lower()}" in line for line in dots) == 8 + 1
    assert sum(f"fill: {SECOND.lower()}" in line for line in dots) == 6 + 1


def test_too_few_and_too_many_curves_are_refused() -> None:
    run = gradient_descent(PROBLEM, START, rate=0.1, num_steps=1)
    with pytest.raises(ConstructionError, match="draw_descent draws 1 to 4 curves, got 5"):
        draw_descent(dict.fromkeys("abcde", run), "many.svg")
    with pytest.raises(ConstructionError, match="draw_ways draws 1 to 4 curves, got 0"):
        draw_ways(PROBLEM, {}, "none.svg")


def test_points_outside_the_plane_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"of 2 parameters, got shapes \[\(2,\), \(3,\)\]"):
        draw_ways(PROBLEM, {"three": numpy.ones((4, 3))}, "three.svg")
