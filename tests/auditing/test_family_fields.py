import re

import pytest

from rankscope.auditing import Fields
from rankscope.errors import ConfigurationError


def fields(**document: object) -> Fields:
    return Fields(document, {"hidden_size": "n_embd"}, "gpt2", "config.json")


def test_a_familys_own_key_stands_before_the_shared_name() -> None:
    assert fields(n_embd=3, hidden_size=4).size("hidden_size") == 3
    assert fields(n_embd=None, hidden_size=4).size("hidden_size") == 4


def test_null_counts_as_absent() -> None:
    assert fields(n_inner=None).size("n_inner", default=7) == 7
    assert not fields(n_inner=None).has("n_inner")


def test_all_missing_keys_are_named_at_once() -> None:
    wanted = "config.json: .* 'gpt2' needs 3 keys, and n_embd (or hidden_size), depth are missing."
    with pytest.raises(ConfigurationError, match=re.escape(wanted).replace(r"\.\*", ".*")):
        fields(heads=2).require(("hidden_size", "depth", "heads"))


def test_one_missing_key_is_named() -> None:
    with pytest.raises(ConfigurationError, match="needs 1 keys, and depth is missing"):
        fields().require(("depth",))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (-3, "-3"),
        (2**63, str(2**63)),
        (2**31, str(2**31)),
        (True, "True"),
        (12.0, "12.0"),
        (float("nan"), "nan"),
        ("12", "'12'"),
        ([12], "a list of 1"),
        (None, "None"),
    ],
)
def test_a_size_is_a_positive_integer_of_reasonable_length(value: object, shown: str) -> None:
    wanted = re.escape(
        "config.json, at n_embd (or hidden_size): wanted an integer in "
        f"1..{2**31 - 1}, got {shown}."
    )
    with pytest.raises(ConfigurationError, match=f"^{wanted}$"):
        fields(n_embd=value).size("hidden_size")


def test_a_count_may_be_zero_but_not_negative() -> None:
    assert fields(shared=0).count("shared", default=3) == 0
    assert fields().count("shared", default=3) == 3
    with pytest.raises(ConfigurationError, match=r"at shared: wanted an integer in 0\.\..* got -1"):
        fields(shared=-1).count("shared", default=3)


def test_a_flag_is_true_or_false() -> None:
    assert fields(bias=False).flag("bias", default=True) is False
    assert fields().flag("bias", default=True) is True
    with pytest.raises(ConfigurationError, match="at bias: wanted true or false, got 1"):
        fields(bias=1).flag("bias", default=True)


def test_a_choice_is_one_of_a_few_words() -> None:
    assert fields().choice("kind", ("relu", "gelu")) == "relu"
    assert fields(kind="gelu").choice("kind", ("relu", "gelu")) == "gelu"
    with pytest.raises(ConfigurationError, match="at kind: wanted one of relu, gelu, got 'tanh'"):
        fields(kind="tanh").choice("kind", ("relu", "gelu"))


def test_lists_hold_one_kind_of_thing() -> None:
    found = fields(architectures=["BertModel"], layers=[0, 3])
    assert found.words("architectures") == ("BertModel",)
    assert found.numbers("layers") == (0, 3)
    assert fields().words("architectures") == ()
    assert fields().numbers("layers") == ()
    with pytest.raises(ConfigurationError, match=r"at layers\[0\]: wanted an integer, got '0'"):
        fields(layers=["0"]).numbers("layers")
    with pytest.raises(ConfigurationError, match=r"at architectures: wanted a list, .*, got 3"):
        fields(architectures=3).words("architectures")


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(ConfigurationError) as caught:
        fields(bias="x" * 10_000).flag("bias", default=True)
    assert len(str(caught.value)) < 200
