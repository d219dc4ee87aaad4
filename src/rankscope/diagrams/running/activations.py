"""The functions of a barrier, carried out in PyTorch."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from rankscope.diagrams.functions import Function

Positions = tuple[int, ...]


def softmax(value: Tensor, over: Positions) -> Tensor:
    """Softmax over several positions at once: their entries together add to one."""
    if len(over) == 1:
        return torch.softmax(value, over[0])
    return torch.exp(log_softmax(value, over))


def log_softmax(value: Tensor, over: Positions) -> Tensor:
    """Logarithm of `softmax`."""
    return value - torch.logsumexp(value, over, keepdim=True)


def layer_norm(value: Tensor, over: Positions, eps: float) -> Tensor:
    """Subtract the mean over some positions, and divide by the standard deviation."""
    if over == tuple(range(value.ndim - len(over), value.ndim)):
        return F.layer_norm(value, [value.shape[position] for position in over], eps=eps)
    variance, mean = torch.var_mean(value, over, correction=0, keepdim=True)
    return (value - mean) * torch.rsqrt(variance + eps)


def rms_norm(value: Tensor, over: Positions, eps: float) -> Tensor:
    """Divide by the root of the mean square over some positions."""
    return value * torch.rsqrt(value.square().mean(over, keepdim=True) + eps)


def causal_mask(value: Tensor, query: int, key: int) -> Tensor:
    """Minus infinity wherever the position of the key is after the position of the query."""
    place = torch.arange(max(value.shape[query], value.shape[key]), device=value.device)
    queries, keys = [1] * value.ndim, [1] * value.ndim
    queries[query], keys[key] = value.shape[query], value.shape[key]
    is_later = place[: value.shape[key]].view(keys) > place[: value.shape[query]].view(queries)
    return value.masked_fill(is_later, float("-inf"))


def apply_function(function: Function, value: Tensor, over: Positions) -> Tensor:
    """Apply a function with its options; `over` are the positions it normalizes."""
    if function.name in ACTIVATIONS:
        return ACTIVATIONS[function.name](function, value, over)
    options = {key: function.option(key) for key, _ in function.recipe.options}
    given = {key: repr(option).replace("inf", "math.inf") for key, option in options.items()}
    known = {"torch": torch, "F": F, "math": math, "value": value}
    # A line of our own table, the same that is printed.
    made: Tensor = eval(function.recipe.source.format(over=over, **given), known)
    return made


def _number(function: Function, key: str) -> float:
    return float(function.option(key))


# One visible table, with the same names as `functions.RECIPES`; a test keeps them together.
ACTIVATIONS: dict[str, Callable[[Function, Tensor, Positions], Tensor]] = {
    "identity": lambda function, value, over: value,
    "relu": lambda function, value, over: F.relu(value),
    "relu6": lambda function, value, over: F.relu6(value),
    "leaky_relu": lambda function, value, over: F.leaky_relu(
        value, _number(function, "negative_slope")
    ),
    "elu": lambda function, value, over: F.elu(value, _number(function, "alpha")),
    "gelu": lambda function, value, over: F.gelu(
        value, approximate=str(function.option("approximate"))
    ),
    "silu": lambda function, value, over: F.silu(value),
    "tanh": lambda function, value, over: torch.tanh(value),
    "sigmoid": lambda function, value, over: torch.sigmoid(value),
    "softplus": lambda function, value, over: F.softplus(
        value, _number(function, "beta"), _number(function, "threshold")
    ),
    "exp": lambda function, value, over: torch.exp(value),
    "softmax": lambda function, value, over: softmax(value, over),
    "log_softmax": lambda function, value, over: log_softmax(value, over),
    "layer_norm": lambda function, value, over: layer_norm(value, over, _number(function, "eps")),
    "rms_norm": lambda function, value, over: rms_norm(value, over, _number(function, "eps")),
}
