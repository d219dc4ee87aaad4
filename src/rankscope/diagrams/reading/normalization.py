"""Normalization layers: a barrier, or in evaluation mode a fixed scale and shift."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from rankscope.diagrams.functions import Function
from rankscope.diagrams.parts import Role
from rankscope.diagrams.reading.arrays import qualified
from rankscope.diagrams.reading.calls import Call
from rankscope.diagrams.reading.drafts import Barrier, Draft, Operand
from rankscope.diagrams.reading.notebook import axis_letters
from rankscope.diagrams.reading.sorts import BATCH, CHANNEL, FEATURE, SPACES, Sort
from rankscope.diagrams.reading.values import Value, relabelled, whole
from rankscope.errors import SizeError, UnsupportedModuleError

InstanceNorm = nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d


@dataclass(frozen=True)
class Affine:
    """A scale and a shift over some axes; either may be missing."""

    axes: tuple[int, ...]
    scale: Value | None = None
    shift: Value | None = None


def affine_drafts(value: Value, affine: Affine, barrier: Barrier | None) -> list[Draft]:
    """A value, perhaps behind a barrier, times a scale, and a shift to be added."""
    letters = axis_letters(value)
    held = tuple(letters[axis] for axis in affine.axes)
    operands = [Operand("X", value, letters)]
    if affine.scale is not None:
        operands.append(Operand("scale", affine.scale, held, r"\gamma"))
    drafts = [Draft(tuple(operands), letters, () if barrier is None else (barrier,))]
    if affine.shift is not None:
        drafts.append(Draft((Operand("shift", affine.shift, held, r"\beta"),), letters))
    return drafts


def normalized(
    call: Call, function: Function, value: Value, over: Sequence[int], affine: Affine
) -> Value:
    """A barrier over some axes of a value, then a scale and a shift."""
    letters = axis_letters(value)
    barrier = Barrier("norm", ("X",), function, tuple(letters[axis] for axis in over))
    return call.notebook.compute(call.name, *affine_drafts(value, affine, barrier))


def read_layer_norm(call: Call) -> Value:
    """Read a layer normalization over the last axes."""
    layer = call.module
    assert isinstance(layer, nn.LayerNorm)
    return layer_norm(call, layer.normalized_shape, layer.weight, layer.bias, layer.eps)


def layer_norm(call: Call, shape: Sequence[int], weight: object, bias: object, eps: float) -> Value:
    """The argument `input`, normalized over its last axes, which must have the given shape."""
    value = call.value("input")
    axes = last_axes(value, shape)
    affine = Affine(axes, _given(call, weight), _given(call, bias))
    return normalized(call, Function("layer_norm", (("eps", eps),)), value, axes, affine)


def read_rms_norm(call: Call) -> Value:
    """Read a division by the root of the mean square over the last axes."""
    layer = call.module
    assert isinstance(layer, nn.RMSNorm)
    value = call.value("x")
    axes = last_axes(value, layer.normalized_shape)
    # PyTorch takes the precision of the input, which is that of the weight in any sane model.
    kind = torch.get_default_dtype() if layer.weight is None else layer.weight.dtype
    eps = torch.finfo(kind).eps if layer.eps is None else layer.eps
    affine = Affine(axes, _given(call, layer.weight))
    return normalized(call, Function("rms_norm", (("eps", eps),)), value, axes, affine)


def last_axes(value: Value, shape: Sequence[int]) -> tuple[int, ...]:
    """The last axes, which must have the given shape.

    Raises:
        SizeError: if they have another.
    """
    order = len(value.axes)
    if value.shape[-len(shape) :] != tuple(shape):
        raise SizeError(
            f"A normalization wants inputs whose last axes are {tuple(shape)}, got an input "
            f"of shape {value.shape}."
        )
    return tuple(range(order - len(shape), order))


def _given(call: Call, weight: object) -> Value | None:
    match weight:
        case None:
            return None
        case Value():
            return weight
        case torch.Tensor():
            return call.parameter(weight, (FEATURE,) * weight.ndim)
        case _:
            raise UnsupportedModuleError(f"its weight must be a tensor, got {weight!r}")


def read_group_norm(call: Call) -> Value:
    """Read a normalization over the channels of each group and all positions."""
    layer = call.module
    assert isinstance(layer, nn.GroupNorm)
    value = with_channels(call.value("input"), batched=True)
    shape = value.shape
    if len(shape) < 2 or shape[1] != layer.num_channels:
        raise SizeError(
            f"{call.name}: GroupNorm wants {layer.num_channels} channels on axis 1, got an input "
            f"of shape {shape}."
        )
    groups = (layer.num_groups, layer.num_channels // layer.num_groups)
    name, notebook = call.inner("copy"), call.notebook
    grouped = notebook.reshape(name, value, (shape[0], *groups, *shape[2:]))
    pair = [
        None if weight is None else notebook.reshape(name, weight, groups)
        for weight in (_given(call, layer.weight), _given(call, layer.bias))
    ]
    function = Function("layer_norm", (("eps", layer.eps),))
    over = range(2, len(shape) + 1)
    found = normalized(call, function, grouped, tuple(over), Affine((1, 2), *pair))
    return notebook.reshape(name, found, shape)


def read_instance_norm(call: Call) -> Value:
    """Read a normalization of every channel over all positions."""
    layer = call.module
    assert isinstance(layer, InstanceNorm)
    if layer.track_running_stats:
        raise UnsupportedModuleError("track_running_stats=True is not supported")
    num_spaces = {nn.InstanceNorm1d: 1, nn.InstanceNorm2d: 2}.get(type(layer), 3)
    value = call.value("input")
    value = with_channels(value, batched=len(value.axes) == num_spaces + 2)
    channel = len(value.axes) - num_spaces - 1
    weights = (_given(call, layer.weight), _given(call, layer.bias)) if layer.affine else ()
    function = Function("layer_norm", (("eps", layer.eps),))
    over = tuple(range(channel + 1, len(value.axes)))
    return normalized(call, function, value, over, Affine((channel,), *weights))


def read_batch_norm(call: Call) -> Value:
    """Read a batch normalization in evaluation mode: a scale and a shift for every channel.

    They fold the running statistics; `module_arrays` gives them as "….scale" and "….shift".
    """
    layer = call.module
    assert isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
    if layer.training:
        call.complain("in training mode it mixes the examples of a batch; call module.eval()")
        return call.value("input")
    if layer.running_mean is None:
        raise UnsupportedModuleError("without running statistics it mixes the examples of a batch")
    value = with_channels(call.value("input"), batched=True)
    if len(value.axes) < 2 or value.shape[1] != layer.num_features:
        raise SizeError(
            f"{call.name}: a batch normalization wants {layer.num_features} channels on axis 1, "
            f"got an input of shape {value.shape}."
        )
    scale, shift = (
        whole(qualified(call.path, name), (layer.num_features,), (CHANNEL,), Role.PARAMETER)
        for name in ("scale", "shift")
    )
    return call.notebook.compute(
        call.name, *affine_drafts(value, Affine((1,), scale, shift), barrier=None)
    )


def with_channels(value: Value, *, batched: bool) -> Value:
    """A value whose axes are a batch (if any), channels, and positions in space."""
    num_spaces = len(value.axes) - 1 - batched
    if num_spaces not in SPACES:
        return value
    front: tuple[Sort, ...] = (BATCH, CHANNEL) if batched else (CHANNEL,)
    return relabelled(value, (*front, *SPACES[num_spaces]))
