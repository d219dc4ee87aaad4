import keyword

from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rankscope.diagrams import identifiers
from rankscope.diagrams.source import MODULE_ATTRIBUTES


@given(st.lists(st.text(max_size=6), unique=True, max_size=12))
def test_identifiers_are_different_words_that_nothing_else_uses(names: list[str]) -> None:
    found = identifiers(names, taken=["weight"])
    assert list(found) == names
    assert len({*found.values(), "weight"}) == len(found) + 1
    for word in found.values():
        assert word.isidentifier()
        assert word.isascii()
        assert not keyword.iskeyword(word)
        assert not hasattr(nn.Module(), word)


def test_the_list_of_attributes_covers_the_installed_pytorch() -> None:
    listed = MODULE_ATTRIBUTES.split()
    own = [
        name
        for name in dir(nn.Module())
        # transformers adds methods of its own to the class once it is imported.
        if not str(getattr(getattr(nn.Module, name, None), "__module__", "")).startswith("transf")
    ]
    assert [name for name in own if name[0] != "_" and name not in listed] == []
