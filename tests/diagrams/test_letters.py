from hypothesis import given
from hypothesis import strategies as st

from rankscope.diagrams import letters


@given(st.lists(st.text(min_size=1, max_size=3), max_size=80))
def test_every_name_has_a_letter_of_its_own_and_single_letters_keep_theirs(
    names: list[str],
) -> None:
    found = letters(names)
    assert list(found) == list(dict.fromkeys(names))
    assert len(set(found.values())) == len(found)
    for name, letter in found.items():
        assert len(letter) == 1
        assert letter.isalpha()
        if len(name) == 1 and name.isascii() and name.isalpha():
            assert letter == name


def test_the_first_52_letters_are_those_of_einsum() -> None:
    found = letters(f"{number}" for number in range(60))
    assert all(letter.isascii() for letter in list(found.values())[:52])
    assert not any(letter.isascii() for letter in list(found.values())[52:])
