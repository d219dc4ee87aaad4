import pytest

from rankscope.diagrams import RECIPES, Function
from rankscope.errors import DiagramError


def test_an_unknown_function_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DiagramError, match=r"'sotfmax' is unknown; choose one of: .*softmax"):
        Function("sotfmax")


def test_an_unknown_option_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(DiagramError, match="'layer_norm' takes eps, got option 'epsilon'"):
        Function("layer_norm", (("epsilon", 1e-3),))
    with pytest.raises(DiagramError, match="'relu' takes no options, got option 'slope'"):
        Function("relu", (("slope", 1.0),))


def test_an_option_overrides_its_default() -> None:
    assert Function("gelu", (("approximate", "tanh"),)).option("approximate") == "tanh"


def test_every_source_mentions_all_its_options() -> None:
    for name, recipe in RECIPES.items():
        assert "value" in recipe.source, name
        for option, _ in recipe.options:
            assert f"{{{option}}}" in recipe.source, name
        assert ("{over}" in recipe.source) == recipe.normalizes, name
