import pytest

from rankscope.diagrams.running.schedule import Operation, Pick, Read, Spread
from rankscope.diagrams.running.statements import (
    Names,
    einsum_equation,
    literal,
    number,
    statements,
)
from rankscope.errors import EinsumError


def test_rows_are_read_as_rows_of_a_matrix() -> None:
    read = Read(1, (0,), (2, 3), (4, 6))
    assert statements(read, Names("W", ("self.w",), ((8, 3),))) == (
        "W = self.w.reshape(-1, 3)[4:6].reshape(2, 3)",
    )


def test_a_product_with_a_constant_sums_scales_and_expands() -> None:
    spread = Spread(1, (0,), (4, 2), (("a", "b"),), ("c", "a"), 0.5)
    assert statements(spread, Names("y", ("x",), ((2, 3),))) == (
        "y = (x.sum((1,)).reshape(1, 2) * 0.5).expand(4, 2)",
    )


def test_a_look_up_names_its_rows_and_places() -> None:
    pick = Pick(2, (0, 1), (3, 4), (("n",), ("v", "f")), ("n", "f"), "v")
    assert statements(pick, Names("y", ("ids", "self.E"), ((3,), (9, 4)))) == (
        "rows = self.E",
        "place = ids",
        "y = torch.index_select(rows, 0, place).reshape(3, 4)",
    )


def test_options_are_literals() -> None:
    assert literal("it's") == repr("it's")
    assert literal(0.25) == "0.25"


def test_more_indices_than_letters_are_refused_with_their_number() -> None:
    names = tuple(f"index {place}" for place in range(53))
    with pytest.raises(EinsumError, match=r"has 53 indices, but torch\.einsum takes at most 52"):
        einsum_equation((names,), ())


def test_numbers_are_read_back_exactly() -> None:
    assert eval(number(0.1)) == 0.1
    assert eval(number(float("inf"))) == float("inf")


def test_an_operation_without_statements_is_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match="Operation"):
        statements(Operation(0, (), ()), Names("a", (), ()))
