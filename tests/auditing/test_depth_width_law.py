import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.auditing import LEVINE, Configuration, LawDepth, Parameters, parameters_in_blocks
from rankscope.errors import PlanError


@pytest.mark.parametrize(
    ("depth", "width"),
    [
        (6, "215.3"),
        (12, "300.4"),
        (18, "419.1"),
        (24, "584.6"),
        (30, "815.7"),
        (36, "1138.0"),
        (48, "2215.0"),
        (64, "5383.0"),
    ],
)
def test_widths_of_the_law_as_in_the_specification(depth: int, width: str) -> None:
    assert f"{LEVINE.width(float(depth)):.1f}" == width


@pytest.mark.parametrize(("depth", "width"), [(80, 13082), (95, 30077)])
def test_wide_widths_of_the_law_as_in_the_specification(depth: int, width: int) -> None:
    assert round(LEVINE.width(float(depth))) == width


@pytest.mark.parametrize(
    ("depth", "parameters"),
    [
        (12, "1.299e+07"),
        (24, "9.844e+07"),
        (36, "5.594e+08"),
        (48, "2.826e+09"),
        (80, "1.643e+11"),
        (95, "1.031e+12"),
    ],
)
def test_parameters_of_the_law_as_in_the_specification(depth: int, parameters: str) -> None:
    assert f"{LEVINE.parameters(float(depth)):.3e}" == parameters


@pytest.mark.parametrize(
    ("depth", "width", "best"),
    [
        (12, 768, "23.04"),
        (24, 1024, "31.62"),
        (24, 1536, "37.41"),
        (24, 2048, "41.63"),
        (32, 2560, "47.12"),
        (32, 4096, "54.31"),
        (40, 5140, "59.58"),
        (96, 12288, "80.46"),
    ],
)
def test_best_depths_of_the_gpt3_family(depth: int, width: int, best: str) -> None:
    assert f"{LEVINE.best_depth(12.0 * depth * width**2).real:.2f}" == best


def test_the_uncertainty_of_the_largest_gpt3_is_that_of_the_specification() -> None:
    found = LEVINE.best_depth(12.0 * 96 * 12288**2)
    assert str(found) == "80.5 (78.3 to 82.7)"
    assert found.standard_deviation == (found.high - found.low) / 2


@settings(deadline=None)
@given(depth=st.floats(0.1, 150.0))
def test_the_best_depth_inverts_the_parameters_and_lies_inside_its_interval(depth: float) -> None:
    found = LEVINE.best_depth(LEVINE.parameters(depth))
    assert found.real == pytest.approx(depth)
    assert found.low < found.real < found.high
    assert LEVINE.depth_for_width(LEVINE.width(depth)) == pytest.approx(depth)


@settings(deadline=None)
@given(depth=st.floats(1.0, 120.0), first=st.floats(-1.0, 1.0), second=st.floats(-1.0, 1.0))
def test_no_smaller_move_of_the_two_parameters_leaves_the_interval(
    depth: float, first: float, second: float
) -> None:
    intercept = LEVINE.intercept + first * LEVINE.intercept_error
    slope = LEVINE.slope + second * LEVINE.slope_error
    found = LEVINE.best_depth(12 * depth * math.exp(2 * intercept + 2 * slope * depth))
    assert found.low <= depth * (1 + 1e-9)
    assert depth <= found.high * (1 + 1e-9)


@pytest.mark.parametrize("parameters", [0.0, -5.0, math.inf, math.nan])
def test_no_parameters_have_no_depth(parameters: float) -> None:
    with pytest.raises(PlanError, match=f"positive number of parameters, got {parameters:,}"):
        LEVINE.best_depth(parameters)


def test_the_law_knows_where_it_was_fitted() -> None:
    assert [LEVINE.is_fitted_at(depth) for depth in (5.9, 6.0, 48.0, 48.1)] == [
        False,
        True,
        True,
        False,
    ]
    assert LEVINE.to_dict()["fitted_depths"] == [6, 48]


def test_a_depth_is_admitted_if_the_interval_rounds_to_it() -> None:
    found = LawDepth(real=31.5, low=31.2, high=31.9)
    assert [found.admits(depth) for depth in (30, 31, 32, 33)] == [False, True, True, False]


def test_blocks_hold_neither_embedding_nor_head() -> None:
    parameters = Parameters(1, 20, 300, 4000, 50000, 600000)
    found = Configuration("gpt2", 1, 64, 1, 64, 1, 256, 100, 64, parameters)
    assert parameters_in_blocks(found) == 4320
