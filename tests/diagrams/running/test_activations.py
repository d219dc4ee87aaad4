"""Functions over several positions against their formulas, and against their recipes."""

import re

import pytest
import torch
import torch.nn.functional as F

from rankscope.diagrams.functions import RECIPES, Function
from rankscope.diagrams.running import activations
from rankscope.diagrams.running.activations import ACTIVATIONS, apply_function, causal_mask
from rankscope.diagrams.source import FUNCTIONS

OVERS = [(0,), (2,), (0, 2), (1, 2), (0, 1, 2)]


@pytest.fixture
def value() -> torch.Tensor:
    return 3 * torch.randn(2, 3, 4, dtype=torch.float64)


def generated() -> dict[str, object]:
    """The functions that a generated file defines."""
    names: dict[str, object] = {"torch": torch, "Tensor": torch.Tensor, "F": F}
    for text in FUNCTIONS.values():
        exec(text, names)
    return names


def test_the_tables_of_functions_have_the_same_names() -> None:
    assert list(ACTIVATIONS) == list(RECIPES)
    assert set(FUNCTIONS) - {"causal_mask"} == {n for n, r in RECIPES.items() if r.normalizes}


@pytest.mark.parametrize("name", list(RECIPES))
@pytest.mark.parametrize("over", OVERS)
def test_a_function_equals_its_recipe(
    name: str, over: tuple[int, ...], value: torch.Tensor
) -> None:
    options: dict[str, tuple[tuple[str, float | str], ...]] = {
        "leaky_relu": (("negative_slope", 0.3),),
        "elu": (("alpha", 0.7),),
        "gelu": (("approximate", "tanh"),),
        "softplus": (("beta", 2.0), ("threshold", 3.0)),
        "layer_norm": (("eps", 0.5),),
        "rms_norm": (("eps", 0.25),),
    }
    function = Function(name, options.get(name, ()))
    written = {key: repr(function.option(key)) for key, _ in function.recipe.options}
    expression = function.recipe.source.format(over=over, **written)
    names = generated() | {"value": value}
    torch.testing.assert_close(apply_function(function, value, over), eval(expression, names))


@pytest.mark.parametrize("over", OVERS)
def test_a_softmax_over_several_positions_adds_to_one_and_keeps_ratios(
    over: tuple[int, ...], value: torch.Tensor
) -> None:
    result = activations.softmax(value, over)
    torch.testing.assert_close(result.sum(over), torch.ones_like(result.sum(over)))
    powers = torch.exp(value)
    torch.testing.assert_close(result, powers / powers.sum(over, keepdim=True))
    torch.testing.assert_close(activations.log_softmax(value, over), torch.log(result))


@pytest.mark.parametrize("over", OVERS)
def test_norms_have_the_promised_moments(over: tuple[int, ...], value: torch.Tensor) -> None:
    centred = value - value.mean(over, keepdim=True)
    variance = centred.square().mean(over, keepdim=True)
    expected = centred / torch.sqrt(variance + 0.1)
    torch.testing.assert_close(activations.layer_norm(value, over, 0.1), expected)
    root = torch.sqrt(value.square().mean(over, keepdim=True) + 0.1)
    torch.testing.assert_close(activations.rms_norm(value, over, 0.1), value / root)


@pytest.mark.parametrize(("query", "key"), [(0, 2), (2, 0), (1, 2), (2, 1)])
def test_a_causal_mask_hides_exactly_the_later_keys(
    query: int, key: int, value: torch.Tensor
) -> None:
    written = generated()["causal_mask"]
    assert callable(written)
    masked = causal_mask(value, query, key)
    torch.testing.assert_close(masked, written(value, query, key))
    for place in torch.cartesian_prod(*(torch.arange(size) for size in value.shape)).tolist():
        expected = float("-inf") if place[key] > place[query] else value[tuple(place)]
        assert masked[tuple(place)] == expected


def test_generated_functions_are_plain_python() -> None:
    for name, text in FUNCTIONS.items():
        assert re.match(rf"\ndef {name}\(", text)
