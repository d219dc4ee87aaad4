import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opt_einsum.parser import find_output_str

from rankscope.diagrams import Equation
from rankscope.diagrams.einsum import ELLIPSIS
from rankscope.errors import EinsumError

OPERANDS = st.lists(st.text("abcXYäЖ", max_size=4), min_size=1, max_size=5)


@settings(deadline=None)
@given(operands=OPERANDS)
def test_without_an_arrow_the_output_is_that_of_opt_einsum(operands: list[str]) -> None:
    text = ",".join(operands)
    assert "".join(Equation.read(text).output) == find_output_str(text)


@settings(deadline=None)
@given(operands=OPERANDS, spaces=st.lists(st.integers(0, 20), max_size=5))
def test_spaces_change_nothing(operands: list[str], spaces: list[int]) -> None:
    text = spread_out = ",".join(operands)
    for place in spaces:
        spread_out = f"{spread_out[:place]} {spread_out[place:]}"
    first, second = Equation.read(text), Equation.read(spread_out)
    assert (first.operands, first.output) == (second.operands, second.output)


def test_an_ellipsis_is_one_part_and_comes_first_in_an_implied_output() -> None:
    equation = Equation.read("b...a, ...a")
    assert equation.operands == (("b", ELLIPSIS, "a"), (ELLIPSIS, "a"))
    assert equation.output == (ELLIPSIS, "b")
    assert equation.letters == ("b", "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ij,jk->iz", "output letter 'z' is on no operand (position 8); the operands have: i, j"),
        (" i j -> z", "output letter 'z' is on no operand (position 8)"),
        (",->a", "output letter 'a' is on no operand (position 3); the operands have: none."),
        ("...->a", "the operands have: none."),
        ("ij->jij", "output letter 'j' is repeated (positions 4 and 6); it may stand once."),
        ("i1->i", "cannot read '1' at position 1; indices are letters."),
        ("ij,jk,2k", "cannot read '2' at position 6; indices are letters."),
        ("i_j", "cannot read '_' at position 1; indices are letters."),
        ("i-j", "cannot read '-' at position 1; the arrow is written '->', once."),
        ("ij->i->j", "cannot read '-' at position 5; the arrow is written '->', once."),
        ("i>j", "cannot read '>' at position 1; the arrow is written '->', once."),
        ("ij->i,j", "cannot read ',' at position 5; the output is one group of letters."),
        ("i..", "cannot read '.' at position 1; an ellipsis is three dots."),
        ("i....", "cannot read '.' at position 4; an ellipsis is three dots."),
        ("...i...", "second ellipsis at position 4; one is allowed."),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_with_its_position(text: str, message: str) -> None:
    with pytest.raises(EinsumError, match=re.escape(f"Einsum {text!r}: ")) as caught:
        Equation.read(text)
    assert message in str(caught.value)
