import pytest

from rankscope.diagrams import evaluate_scale, scale_symbols
from rankscope.errors import DiagramError, SizeError


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("D**-0.5", 0.125),
        ("1/(D*H)", 1 / 128),
        ("-D + 4*H", -56.0),
        ("2", 2.0),
        ("D - H", 62.0),
    ],
)
def test_a_scale_is_ordinary_arithmetic(expression: str, value: float) -> None:
    assert evaluate_scale(expression, {"D": 64, "H": 2}) == value


def test_symbols_are_listed_once_in_order_of_appearance() -> None:
    assert scale_symbols("D*H + D") == ("D", "H")


@pytest.mark.parametrize(
    "expression",
    ["__import__('os')", "D.real", "[1]", "D if D else 1", "lambda: 1", "D @ D", "not D", "D %"],
)
def test_anything_that_is_not_arithmetic_is_refused(expression: str) -> None:
    with pytest.raises(DiagramError, match="Scale"):
        evaluate_scale(expression, {"D": 2})


@pytest.mark.parametrize("expression", ["1/(D-2)", "10.0**(D*400)"])
def test_a_scale_without_a_finite_value_is_refused(expression: str) -> None:
    with pytest.raises(DiagramError, match="no finite value"):
        evaluate_scale(expression, {"D": 2})


def test_a_complex_scale_is_refused() -> None:
    with pytest.raises(DiagramError, match="not a real number"):
        evaluate_scale("(0-D)**0.5", {"D": 2})


def test_text_in_a_scale_is_refused() -> None:
    with pytest.raises(DiagramError, match="'x'"):
        evaluate_scale("D*'x'", {"D": 2})


def test_a_symbol_without_a_size_is_named() -> None:
    with pytest.raises(SizeError, match="needs a size for D"):
        evaluate_scale("D**-0.5", {"D": None})
