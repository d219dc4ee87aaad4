from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.constructions.dense import rational
from rankscope.constructions.regions_space import Ball, largest_ball, proves_empty, proves_interior
from rankscope.errors import ConstructionError


def test_the_largest_ball_of_a_square_is_its_circle() -> None:
    normals = numpy.array([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    found = largest_ball(normals, numpy.array([0.0, 1.0, 0.0, 0.5]))
    assert found.radius == pytest.approx(0.25)
    assert proves_interior(found, rational(normals), rational(numpy.array([0.0, 1.0, 0.0, 0.5])))


def test_an_unbounded_polyhedron_has_a_ball_of_radius_one() -> None:
    assert largest_ball(numpy.array([[1.0, 1.0]]), numpy.zeros(1)).radius == pytest.approx(1.0)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 4), st.integers(2, 8), st.integers(0, 10**6))
def test_each_decision_has_a_proof_in_fractions(inputs: int, count: int, seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    normals, offsets = draw.standard_normal((count, inputs)), draw.standard_normal(count) - 0.3
    found = largest_ball(normals, offsets)
    is_solid = found.radius > 1e-8
    assert proves_interior(found, rational(normals), rational(offsets)) == is_solid
    assert proves_empty(found, rational(normals), rational(offsets)) == (found.radius <= 0)


def test_two_halves_that_only_touch_are_proved_to_have_no_interior() -> None:
    normals, offsets = numpy.array([[3.0, 1.0], [-3.0, -1.0]]), numpy.array([1.0, -1.0])
    found = largest_ball(normals, offsets)
    assert found.radius == pytest.approx(0.0, abs=1e-9)
    assert proves_empty(found, rational(normals), rational(offsets))


def test_multipliers_that_do_not_combine_to_zero_prove_nothing() -> None:
    normals, offsets = rational(numpy.eye(2)), rational(-numpy.ones(2))
    assert not proves_empty(Ball(numpy.zeros(2), -1.0, numpy.ones(2)), normals, offsets)
    assert not proves_empty(Ball(numpy.zeros(2), -1.0, numpy.zeros(2)), normals, offsets)
    assert not proves_interior(Ball(numpy.ones(2), 1.0, numpy.ones(2)), normals, offsets)
    assert offsets[0] == Fraction(-1)


def test_a_solver_that_gives_up_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed:
        status = 4
        message = "numerical trouble"

    monkeypatch.setattr("rankscope.constructions.regions_space.linprog", lambda *_, **__: Failed())
    with pytest.raises(
        ConstructionError, match=r"1 constraints in 2 dimensions: numerical trouble"
    ):
        largest_ball(numpy.ones((1, 2)), numpy.ones(1))
