"""Functions between layers: barriers around one value."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from rankscope.diagrams.functions import Function
from rankscope.diagrams.reading.calls import Call
from rankscope.diagrams.reading.values import Value
from rankscope.errors import UnsupportedModuleError

# A module's class, the barrier it is, and which of its attributes are the barrier's options.
ACTIVATIONS: Mapping[type[nn.Module], tuple[str, tuple[str, ...]]] = {
    nn.ReLU: ("relu", ()),
    nn.ReLU6: ("relu6", ()),
    nn.LeakyReLU: ("leaky_relu", ("negative_slope",)),
    nn.ELU: ("elu", ("alpha",)),
    nn.GELU: ("gelu", ("approximate",)),
    nn.SiLU: ("silu", ()),
    nn.Tanh: ("tanh", ()),
    nn.Sigmoid: ("sigmoid", ()),
    nn.Softplus: ("softplus", ("beta", "threshold")),
}
NORMALIZED: Mapping[type[nn.Module], str] = {
    nn.Softmax: "softmax",
    nn.LogSoftmax: "log_softmax",
}


def read_activation(call: Call) -> Value:
    """Read a function that acts entry by entry."""
    assert call.module is not None
    name, attributes = next(
        found for kind, found in ACTIVATIONS.items() if isinstance(call.module, kind)
    )
    given = {attribute: getattr(call.module, attribute) for attribute in attributes}
    return activate(call, name, given, call.value("input"))


def read_softmax(call: Call) -> Value:
    """Read a softmax or its logarithm over one axis."""
    assert isinstance(call.module, nn.Softmax | nn.LogSoftmax)
    name = next(found for kind, found in NORMALIZED.items() if isinstance(call.module, kind))
    return normalize(call, name, call.value("input"), call.module.dim)


def activate(call: Call, name: str, options: Mapping[str, Any], value: Value) -> Value:
    """Put a barrier around a value; options at their defaults are left out."""
    usual = dict(Function(name).recipe.options)
    changed = tuple(
        (key, float(given) if not isinstance(given, str) else given)
        for key, given in options.items()
        if given != usual[key]
    )
    return call.notebook.apply(call.name, Function(name, changed), value)


def normalize(call: Call, name: str, value: Value, axis: int | None) -> Value:
    """Put a softmax around a value, over one axis.

    Raises:
        UnsupportedModuleError: if the axis is not given.
    """
    if axis is None:
        raise UnsupportedModuleError(f"{name} without `dim` guesses its axis; say dim=…")
    return call.notebook.apply(call.name, Function(name), value, (value.position(axis),))
