"""Convolutions and average pooling."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from rankscope.diagrams.parts import Role
from rankscope.diagrams.reading.calls import Call
from rankscope.diagrams.reading.drafts import Draft, Operand, Slide
from rankscope.diagrams.reading.labels import fraction_label, weight_label
from rankscope.diagrams.reading.normalization import with_channels
from rankscope.diagrams.reading.sorts import CHANNEL, KERNELS, SPACES
from rankscope.diagrams.reading.values import Axis, Piece, Value
from rankscope.errors import SizeError, UnsupportedModuleError

ConvolutionLayer = nn.Conv1d | nn.Conv2d | nn.Conv3d
AveragePool = nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d
AdaptivePool = nn.AdaptiveAvgPool1d | nn.AdaptiveAvgPool2d | nn.AdaptiveAvgPool3d


@dataclass(frozen=True)
class Window:
    """How a kernel slides along one axis."""

    kernel: int
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    dilation: int = 1
    padding_mode: str = "zeros"

    def output_size(self, size: int) -> int:
        """How many positions the kernel has."""
        reach = self.dilation * (self.kernel - 1) + 1
        return (size + sum(self.padding) - reach) // self.stride + 1


def slides(
    value: Value, windows: Sequence[Window], first: int
) -> tuple[tuple[Slide, ...], dict[str, Axis]]:
    """The convolutions along the axes from `first`, and the pieces of their outputs.

    The letters are "in0", "kernel0", "out0", "in1", …

    Raises:
        SizeError: if a kernel does not fit.
    """
    found: list[Slide] = []
    pieces: dict[str, Axis] = {}
    for place, (window, sort) in enumerate(zip(windows, SPACES[len(windows)], strict=True)):
        size = value.shape[first + place]
        output = window.output_size(size)
        if output < 1:
            raise SizeError(
                f"A kernel of {window.kernel} (dilation {window.dilation}) does not fit an axis "
                f"of size {size} with padding {window.padding}."
            )
        pieces[f"out{place}"] = (Piece(output, sort),)
        found.append(
            Slide(
                f"in{place}",
                f"kernel{place}",
                f"out{place}",
                window.stride,
                window.padding,
                window.dilation,
                window.padding_mode,
            )
        )
    return tuple(found), pieces


def read_convolution(call: Call) -> Value:
    """Read a convolution; the channels of each group are apart from the others."""
    layer = call.module
    assert isinstance(layer, ConvolutionLayer)
    windows = _windows(layer)
    count = len(windows)
    value = call.value("input")
    if len(value.axes) not in (count + 1, count + 2):
        raise SizeError(
            f"{call.name}: {type(layer).__name__} wants {count + 1} or {count + 2} axes, got an "
            f"input of shape {value.shape}."
        )
    value = with_channels(value, batched=len(value.axes) == count + 2)
    front = len(value.axes) - count - 1
    if value.shape[front] != layer.in_channels:
        raise SizeError(
            f"{call.name}: {type(layer).__name__} wants {layer.in_channels} channels on axis "
            f"{front}, got an input of shape {value.shape}."
        )
    moves, known = slides(value, windows, front + 1)
    weight = call.parameter(layer.weight, (CHANNEL, CHANNEL, *KERNELS[count]))
    bias = None if layer.bias is None else call.parameter(layer.bias, (CHANNEL,))
    grouped, weight, bias = _grouped(call, layer, value, weight, bias)
    batch, into, out = ("batch",) * front, tuple(m.input for m in moves), tuple(known)
    kernel = tuple(move.kernel for move in moves)
    output = (*batch, "group", "to", *out)
    operands = (
        Operand("X", grouped, (*batch, "group", "from", *into)),
        Operand("W", weight, ("group", "to", "from", *kernel), weight_label(weight.array)),
    )
    drafts = [Draft(operands, output, slides=moves)]
    if bias is not None:
        drafts.append(Draft((Operand("b", bias, ("group", "to"), r"\mathbf{b}"),), output))
    found = call.notebook.compute(call.name, *drafts, known=known)
    shape = found.shape
    wanted = (*shape[:front], layer.out_channels, *shape[front + 2 :])
    return call.notebook.reshape(call.inner("copy"), found, wanted)


def _grouped(
    call: Call, layer: ConvolutionLayer, value: Value, weight: Value, bias: Value | None
) -> tuple[Value, Value, Value | None]:
    """Channels cut into (group, channel of the group); one group is an axis without pieces."""
    notebook, name, groups = call.notebook, call.inner("copy"), layer.groups
    front = len(value.axes) - len(layer.kernel_size) - 1
    shape, out = value.shape, layer.out_channels // groups
    cut = (*shape[:front], groups, layer.in_channels // groups, *shape[front + 1 :])
    value = notebook.reshape(name, value, cut)
    weight = notebook.reshape(name, weight, (groups, out, *weight.shape[1:]))
    if bias is not None:
        bias = notebook.reshape(name, bias, (groups, out))
    return value, weight, bias


def _windows(layer: ConvolutionLayer) -> tuple[Window, ...]:
    found = []
    for place, kernel in enumerate(layer.kernel_size):
        stride, dilation = layer.stride[place], layer.dilation[place]
        total = dilation * (kernel - 1)
        if isinstance(layer.padding, str):
            padding = (total // 2, total - total // 2) if layer.padding == "same" else (0, 0)
        else:
            padding = (layer.padding[place], layer.padding[place])
        found.append(Window(kernel, stride, padding, dilation, layer.padding_mode))
    return tuple(found)


def read_average_pool(call: Call) -> Value:
    """Read an average over windows: a convolution with a constant kernel."""
    layer = call.module
    assert isinstance(layer, AveragePool)
    count = {nn.AvgPool1d: 1, nn.AvgPool2d: 2}.get(type(layer), 3)
    kernels, strides, paddings = (
        _per_axis(number, count) for number in (layer.kernel_size, layer.stride, layer.padding)
    )
    windows = tuple(
        Window(kernel, stride, (padding, padding))
        for kernel, stride, padding in zip(kernels, strides, paddings, strict=True)
    )
    if layer.ceil_mode:
        raise UnsupportedModuleError("ceil_mode=True averages windows of different sizes")
    if any(paddings) and not layer.count_include_pad:
        raise UnsupportedModuleError(
            "count_include_pad=False with padding averages windows of different sizes"
        )
    divisor = getattr(layer, "divisor_override", None) or math.prod(kernels)
    return averaged(call, call.value("input"), windows, 1.0 / divisor)


def read_adaptive_pool(call: Call) -> Value:
    """Read an average to a fixed output size, which must divide the input's."""
    layer = call.module
    assert isinstance(layer, AdaptivePool)
    value = call.value("input")
    count = {nn.AdaptiveAvgPool1d: 1, nn.AdaptiveAvgPool2d: 2}.get(type(layer), 3)
    sizes = value.shape[len(value.axes) - count :]
    given = layer.output_size
    wanted = tuple(given) if isinstance(given, Sequence) else (given,) * count
    outputs = [size if want is None else want for size, want in zip(sizes, wanted, strict=True)]
    if any(size % output for size, output in zip(sizes, outputs, strict=True)):
        raise UnsupportedModuleError(
            f"an output of {tuple(outputs)} does not divide the input's {tuple(sizes)}, so the "
            "windows have different sizes"
        )
    windows = tuple(
        Window(size // output, size // output) for size, output in zip(sizes, outputs, strict=True)
    )
    return averaged(call, value, windows, 1.0 / math.prod(window.kernel for window in windows))


def averaged(call: Call, value: Value, windows: Sequence[Window], weight: float) -> Value:
    """The weighted sum over windows that slide along the last axes."""
    count = len(windows)
    front = len(value.axes) - count
    value = with_channels(value, batched=front == 2)
    if all(_tiles(window, value.shape[front + n]) for n, window in enumerate(windows)):
        return _averaged_tiles(call, value, windows, weight)
    moves, known = slides(value, windows, front)
    kernel = _constant([window.kernel for window in windows], weight)
    kept = tuple(f"kept{axis}" for axis in range(front))
    operands = (
        Operand("X", value, (*kept, *(move.input for move in moves))),
        Operand("average", kernel, tuple(move.kernel for move in moves), fraction_label(weight)),
    )
    draft = Draft(operands, (*kept, *known), slides=moves)
    return call.notebook.compute(call.name, draft, known=known)


def _averaged_tiles(call: Call, value: Value, windows: Sequence[Window], weight: float) -> Value:
    """Windows side by side need no convolution: each axis is cut into (window, place in it)."""
    front = len(value.axes) - len(windows)
    kept = tuple(f"kept{axis}" for axis in range(front))
    shape, letters = list(value.shape[:front]), list(kept)
    for place, window in enumerate(windows):
        shape += [value.shape[front + place] // window.kernel, window.kernel]
        letters += [f"out{place}", f"inside{place}"]
    cut = call.notebook.reshape(call.inner("copy"), value, shape)
    kernel = _constant([window.kernel for window in windows], weight)
    inside = tuple(f"inside{place}" for place in range(len(windows)))
    operands = (
        Operand("X", cut, tuple(letters)),
        Operand("average", kernel, inside, fraction_label(weight)),
    )
    output = (*kept, *(f"out{place}" for place in range(len(windows))))
    return call.notebook.compute(call.name, Draft(operands, output))


def _tiles(window: Window, size: int) -> bool:
    return window.stride == window.kernel and window.padding == (0, 0) and not size % window.kernel


def _constant(sizes: Sequence[int], fill: float) -> Value:
    pieces = tuple(Piece(size, sort) for size, sort in zip(sizes, KERNELS[len(sizes)], strict=True))
    axes = tuple((piece,) for piece in pieces)
    return Value("constant", pieces, axes, Role.CONSTANT, fill=fill)


def _per_axis(given: int | Sequence[int], count: int) -> tuple[int, ...]:
    return (given,) * count if isinstance(given, int) else tuple(given)
