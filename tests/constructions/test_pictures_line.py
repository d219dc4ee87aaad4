from pathlib import Path

import numpy

from rankscope.constructions.approximation import approximate_on_interval
from rankscope.constructions.interval_arithmetic import IntervalFunction, exp
from rankscope.constructions.obstructions import polynomial_barrier
from rankscope.constructions.pictures_functions import (
    draw_approximation,
    draw_barrier,
    draw_hidden_units,
    draw_sawtooth,
)
from rankscope.constructions.piecewise_linear import PiecewiseLinear

EXPONENTIAL = IntervalFunction(exp)


def num_lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count('id="line2d_')


def test_every_hidden_unit_is_drawn(tmp_path: Path) -> None:
    short = PiecewiseLinear.of([0.0], [-1.0, 1.0])
    long = PiecewiseLinear.of([0.0, 1.0, 2.0], [-1.0, 1.0, 0.0, 3.0])
    affine = PiecewiseLinear.of([], [2.0])
    counts = [
        num_lines(draw_hidden_units(function, tmp_path / "a.svg")) for function in (short, long)
    ]
    assert counts[1] > counts[0]
    assert draw_hidden_units(affine, tmp_path / "b.svg").stat().st_size > 0


def test_an_approximation_shows_two_panels(tmp_path: Path) -> None:
    found = approximate_on_interval(EXPONENTIAL, 0.0, 1.0, epsilon=0.1)
    text = draw_approximation(found, EXPONENTIAL, tmp_path / "a.svg").read_text(encoding="utf-8")
    assert 'id="axes_2"' in text


def test_each_rival_of_the_sawtooth_is_a_line(tmp_path: Path) -> None:
    flat = PiecewiseLinear.of([], [0.0], value=0.5)
    alone = num_lines(draw_sawtooth(3, {}, tmp_path / "a.svg"))
    accompanied = num_lines(draw_sawtooth(3, {"flat": flat, "flatter": flat}, tmp_path / "b.svg"))
    # One on the axes and one in the legend, each.
    assert accompanied == alone + 4


def test_a_barrier_is_drawn(tmp_path: Path) -> None:
    found = polynomial_barrier(numpy.exp, 0.0, 1.0, degree=2)
    assert draw_barrier(found, EXPONENTIAL, (0.0, 1.0), tmp_path / "a.png").stat().st_size > 0
