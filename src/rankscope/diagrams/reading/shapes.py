"""Modules that only look at a value in another way, or pass it on."""

from torch import nn

from rankscope.diagrams.reading.calls import Call
from rankscope.diagrams.reading.values import Value

Dropout = nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d | nn.AlphaDropout


def read_identity(call: Call) -> Value:
    """Read a module that returns its input."""
    return call.value("input")


def read_dropout(call: Call) -> Value:
    """Read a dropout, which does nothing in evaluation mode."""
    layer = call.module
    assert isinstance(layer, Dropout)
    if layer.training and layer.p > 0.0:
        call.complain(f"p={layer.p} is random in training mode; call module.eval()")
    return call.value("input")


def read_flatten(call: Call) -> Value:
    """Read a reshape that joins neighbouring axes."""
    layer = call.module
    assert isinstance(layer, nn.Flatten)
    return flattened(call, call.value("input"), layer.start_dim, layer.end_dim)


def flattened(call: Call, value: Value, start: int, end: int) -> Value:
    """Join the axes from `start` to `end`, both included."""
    first, last = value.position(start), value.position(end)
    shape = value.shape
    wanted = (*shape[:first], -1, *shape[last + 1 :])
    return call.notebook.reshape(call.inner("copy"), value, wanted)


def read_unflatten(call: Call) -> Value:
    """Read a reshape that cuts one axis into several."""
    layer = call.module
    assert isinstance(layer, nn.Unflatten)
    value = call.value("input")
    axis = value.position(int(layer.dim))
    sizes = tuple(int(size) for size in layer.unflattened_size)
    shape = value.shape
    wanted = (*shape[:axis], *sizes, *shape[axis + 1 :])
    return call.notebook.reshape(call.inner("copy"), value, wanted)
