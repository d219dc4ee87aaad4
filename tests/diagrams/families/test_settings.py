import re

import pytest

from rankscope.diagrams.families import Setting
from rankscope.diagrams.families.settings import Value
from rankscope.errors import FamilyError

ONE = Setting("H", "num_heads", "number of heads")
MANY = Setting("rank", "bond_dimensions", "size of each bond", is_list=True)
ZERO = Setting("padding", "padding", "zeros on either side", smallest=0)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        (ONE, "12", 12),
        (ONE, 12, 12),
        (MANY, " 8 ", 8),
        (MANY, "2, 3", (2, 3)),
        (MANY, (2, 3), (2, 3)),
        (MANY, (2,), (2,)),
        (ZERO, "0", 0),
    ],
)
def test_text_and_numbers_are_read_alike(
    setting: Setting, value: str | Value, expected: Value
) -> None:
    assert setting.read(value) == expected


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        (ONE, "x", "H (number of heads) must be a positive integer, got 'x'."),
        (ONE, "0", "must be a positive integer, got '0'."),
        (ONE, -3, "must be a positive integer, got -3."),
        (ONE, True, "must be a positive integer, got True."),
        (ONE, "1.5", "must be a positive integer, got '1.5'."),
        (ONE, "", "must be a positive integer, got ''."),
        (ONE, "1,2", "must be a positive integer, got '1,2'."),
        (ONE, (1,), "must be a positive integer, got (1,)."),
        (MANY, "2,x", "must be a positive integer or several with commas between them, got '2,x'."),
        (MANY, "2,", "or several with commas between them, got '2,'."),
        (MANY, "2,0", "or several with commas between them, got '2,0'."),
        (MANY, (), "or several with commas between them, got ()."),
        (ZERO, -1, "padding (zeros on either side) must be an integer from 0, got -1."),
    ],
)
def test_other_values_are_refused_by_name(
    setting: Setting, value: str | Value, wanted: str
) -> None:
    with pytest.raises(FamilyError, match=re.escape(wanted)):
        setting.read(value)
