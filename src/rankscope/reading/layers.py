"""Rules for layers: convolutions, pooling and normalization."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rankscope.diagrams.parts import PARAMETER_ROLES, Function, Role
from rankscope.reading.captions import fraction_label, weight_label
from rankscope.reading.drafting import Known, axis_letters
from rankscope.reading.drafts import Barrier, Draft, Operand, Slide
from rankscope.reading.rules import Result, Rule
from rankscope.reading.views import (
    BATCH,
    CHANNEL,
    FEATURE,
    GROUP,
    KERNELS,
    SPACES,
    ArrayView,
    Axis,
    Piece,
    Sort,
    relabelled,
)


@dataclass(frozen=True)
class Window:
    """How a kernel slides along one axis."""

    kernel: int
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    dilation: int = 1

    def output_size(self, size: int) -> int:
        """How many positions the kernel has."""
        reach = self.dilation * (self.kernel - 1) + 1
        return (size + sum(self.padding) - reach) // self.stride + 1


def with_channels(view: ArrayView, *, batched: bool) -> ArrayView:
    """A view whose axes are a batch (if any), channels, and positions in space."""
    num_spaces = len(view.axes) - 1 - batched
    if num_spaces not in SPACES:
        return view
    front: tuple[Sort, ...] = (BATCH, CHANNEL) if batched else (CHANNEL,)
    return relabelled(view, (*front, *SPACES[num_spaces]))


def _slides(
    view: ArrayView, windows: Sequence[Window], first: int
) -> tuple[tuple[Slide, ...], dict[str, Axis]]:
    """The convolutions along the axes from `first`, and the pieces of their outputs.

    The letters are "in0", "kernel0", "out0", "in1", …
    """
    slides: list[Slide] = []
    pieces: dict[str, Axis] = {}
    for place, (window, sort) in enumerate(zip(windows, SPACES[len(windows)], strict=True)):
        output = window.output_size(view.shape[first + place])
        pieces[f"out{place}"] = (Piece(output, sort),)
        names = (f"in{place}", f"kernel{place}", f"out{place}")
        slides.append(Slide(*names, window.stride, window.padding, window.dilation))
    return tuple(slides), pieces


def per_axis(given: int | Sequence[int], count: int) -> tuple[int, ...]:
    """A number for each axis, of which one may be given for all."""
    sizes = (given,) if isinstance(given, int) else tuple(given)
    return sizes * count if len(sizes) == 1 else sizes


def read_convolution(rule: Rule) -> Result:
    """A convolution; the channels of each group are apart from the others."""
    view, weight = rule.view("input"), rule.view("weight")
    count = len(weight.axes) - 2
    if rule.argument("transposed"):
        return read_transposed(rule)
    kernels = weight.shape[2:]
    strides, dilations = (per_axis(rule.argument(name), count) for name in ("stride", "dilation"))
    windows = tuple(
        Window(kernel, stride, padding, dilation)
        for kernel, stride, padding, dilation in zip(
            kernels, strides, _paddings(rule, kernels, dilations), dilations, strict=True
        )
    )
    view = with_channels(view, batched=len(view.axes) == count + 2)
    front = len(view.axes) - count - 1
    slides, known = _slides(view, windows, front + 1)
    weight = relabelled(weight, (CHANNEL, CHANNEL, *KERNELS[count]))
    groups, out = rule.argument("groups"), weight.shape[0]
    shape, kept = view.shape, list[Sort | None]([None] * count)
    # Without groups there is no leg for them, also where there is one channel only.
    group = ("group",) if groups > 1 else ()
    if group:
        view = rule.reshape(
            view, (*shape[:front], groups, shape[front] // groups, *shape[front + 1 :])
        )
        view = relabelled(view, (*kept[:1] * front, GROUP, CHANNEL, *kept))
        weight = rule.reshape(weight, (groups, out // groups, *weight.shape[1:]))
        weight = relabelled(weight, (GROUP, CHANNEL, None, *kept))
    batch = ("batch",) * front
    into, kernel = tuple(s.input for s in slides), tuple(s.kernel for s in slides)
    output = (*batch, *group, "to", *known)
    label = weight_label(weight.array) if weight.role in PARAMETER_ROLES else None
    operands = (
        Operand("X", view, (*batch, *group, "from", *into)),
        Operand("W", weight, (*group, "to", "from", *kernel), label),
    )
    drafts = [Draft(operands, output, slides=slides)]
    bias = rule.optional("bias")
    if bias is not None:
        bias = rule.reshape(bias, (groups, out // groups)) if group else bias
        drafts.append(Draft((Operand("b", bias, (*group, "to"), r"\mathbf{b}"),), output))
    made = rule.drafting.compute(rule.name, *drafts, known=known)
    return rule.reshape(made, rule.output.shape)


def _paddings(
    rule: Rule, kernels: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    given = rule.argument("padding")
    if given in ("same", "valid"):
        totals = [
            dilation * (kernel - 1) if given == "same" else 0
            for kernel, dilation in zip(kernels, dilations, strict=True)
        ]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((padding, padding) for padding in per_axis(given, len(kernels)))


def read_transposed(rule: Rule) -> Result:
    """A transposed convolution is called as it is; every input meets every kernel entry once."""
    view, weight = rule.view("input"), rule.view("weight")
    operations = 2 * math.prod(view.shape) * math.prod(weight.shape[1:])
    return rule.call(Known(operations))[0]


def read_average_pool(rule: Rule) -> Result:
    """An average over windows of one size: a convolution with a constant kernel."""
    view = rule.view("self")
    count = int(rule.operation.kind[-2])
    kernels = per_axis(rule.argument("kernel_size"), count)
    strides = per_axis(rule.argument("stride") or kernels, count)
    paddings = per_axis(rule.argument("padding"), count)
    is_uneven = rule.argument("ceil_mode") or not (
        rule.argument("count_include_pad") or not any(paddings)
    )
    if is_uneven:
        return None
    windows = tuple(
        Window(kernel, stride, (padding, padding))
        for kernel, stride, padding in zip(kernels, strides, paddings, strict=True)
    )
    divisor = rule.argument("divisor_override") or math.prod(kernels)
    return _averaged(rule, view, windows, 1.0 / divisor)


def read_adaptive_pool(rule: Rule) -> Result:
    """An average to a fixed output size, where that divides the input's."""
    view = rule.view("self")
    count = int(rule.operation.kind[-2])
    sizes, outputs = view.shape[-count:], rule.output.shape[-count:]
    if any(size % output for size, output in zip(sizes, outputs, strict=True)):
        return None
    windows = tuple(
        Window(size // output, size // output) for size, output in zip(sizes, outputs, strict=True)
    )
    return _averaged(rule, view, windows, 1.0 / math.prod(window.kernel for window in windows))


def _averaged(rule: Rule, view: ArrayView, windows: Sequence[Window], weight: float) -> ArrayView:
    """The weighted sum over windows that slide along the last axes."""
    front = len(view.axes) - len(windows)
    view = with_channels(view, batched=front == 2)
    if all(_tiles(window, view.shape[front + n]) for n, window in enumerate(windows)):
        return _averaged_tiles(rule, view, windows, weight)
    slides, known = _slides(view, windows, front)
    kernel = _constant([window.kernel for window in windows], weight)
    kept = tuple(f"kept{axis}" for axis in range(front))
    operands = (
        Operand("X", view, (*kept, *(slide.input for slide in slides))),
        Operand("average", kernel, tuple(s.kernel for s in slides), fraction_label(weight)),
    )
    draft = Draft(operands, (*kept, *known), slides=slides)
    return rule.drafting.compute(rule.name, draft, known=known)


def _averaged_tiles(
    rule: Rule, view: ArrayView, windows: Sequence[Window], weight: float
) -> ArrayView:
    """Windows side by side need no convolution: each axis is cut into (window, place in it)."""
    front = len(view.axes) - len(windows)
    kept = tuple(f"kept{axis}" for axis in range(front))
    shape, letters = list(view.shape[:front]), list(kept)
    for place, window in enumerate(windows):
        shape += [view.shape[front + place] // window.kernel, window.kernel]
        letters += [f"out{place}", f"inside{place}"]
    cut = rule.reshape(view, shape)
    kernel = _constant([window.kernel for window in windows], weight)
    inside = tuple(f"inside{place}" for place in range(len(windows)))
    operands = (
        Operand("X", cut, tuple(letters)),
        Operand("average", kernel, inside, fraction_label(weight)),
    )
    output = (*kept, *(f"out{place}" for place in range(len(windows))))
    return rule.drafting.compute(rule.name, Draft(operands, output))


def _tiles(window: Window, size: int) -> bool:
    return window.stride == window.kernel and window.padding == (0, 0) and not size % window.kernel


def _constant(sizes: Sequence[int], fill: float) -> ArrayView:
    pieces = tuple(Piece(size, sort) for size, sort in zip(sizes, KERNELS[len(sizes)], strict=True))
    axes = tuple((piece,) for piece in pieces)
    return ArrayView("constant", pieces, axes, Role.CONSTANT, fill=fill)


# --- Normalization -------------------------------------------------------------------------------


def _normalized(
    rule: Rule,
    function: Function,
    view: ArrayView,
    over: Sequence[int],
    affine: tuple[tuple[int, ...], ArrayView | None, ArrayView | None],
) -> ArrayView:
    """A barrier over some axes of a view, then a scale and a shift along some axes."""
    axes, scale, shift = affine
    letters = axis_letters(view)
    held = tuple(letters[axis] for axis in axes)
    barrier = Barrier("norm", ("X",), function, tuple(letters[axis] for axis in over))
    operands = [Operand("X", view, letters)]
    if scale is not None:
        operands.append(Operand("scale", scale, held, r"\gamma"))
    drafts = [Draft(tuple(operands), letters, (barrier,))]
    if shift is not None:
        drafts.append(Draft((Operand("shift", shift, held, r"\beta"),), letters))
    return rule.drafting.compute(rule.name, *drafts)


def read_layer_norm(rule: Rule) -> Result:
    """Layer normalization over the last axes."""
    view = rule.view("input")
    axes = _last_axes(view, rule.argument("normalized_shape"))
    function = Function("layer_norm", (("eps", float(rule.argument("eps"))),))
    weights = (_features(rule.optional("weight")), _features(rule.optional("bias")))
    made = _normalized(rule, function, view, axes, (axes, *weights))
    if len(rule.operation.outputs) > 1:
        return None
    return made


def read_rms_norm(rule: Rule) -> Result:
    """A division by the root of the mean square over the last axes."""
    view = rule.view("input")
    eps = rule.argument("eps")
    if eps is None:
        assert rule.output.dtype is not None
        eps = torch.finfo(rule.output.dtype).eps
    axes = _last_axes(view, rule.argument("normalized_shape"))
    function = Function("rms_norm", (("eps", float(eps)),))
    return _normalized(rule, function, view, axes, (axes, _features(rule.optional("weight")), None))


def _features(view: ArrayView | None) -> ArrayView | None:
    return None if view is None else relabelled(view, (FEATURE,) * len(view.axes))


def _last_axes(view: ArrayView, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(len(view.axes) - len(shape), len(view.axes)))


def read_group_norm(rule: Rule) -> Result:
    """A normalization over the channels of each group and all positions."""
    view = with_channels(rule.view("input"), batched=True)
    shape, count = view.shape, rule.argument("num_groups")
    groups = (count, shape[1] // count)
    grouped = rule.reshape(view, (shape[0], *groups, *shape[2:]))
    grouped = relabelled(grouped, (None, GROUP, CHANNEL, *[None] * (len(shape) - 2)))
    pair = [
        None if weight is None else rule.reshape(weight, groups)
        for weight in (rule.optional("weight"), rule.optional("bias"))
    ]
    function = Function("layer_norm", (("eps", float(rule.argument("eps"))),))
    over = tuple(range(2, len(shape) + 1))
    made = _normalized(rule, function, grouped, over, ((1, 2), pair[0], pair[1]))
    return rule.reshape(made, shape)


def read_instance_norm(rule: Rule) -> Result:
    """A normalization of every channel over all positions."""
    if not rule.argument("use_input_stats"):
        return None
    view = with_channels(rule.view("input"), batched=True)
    function = Function("layer_norm", (("eps", float(rule.argument("eps"))),))
    over = tuple(range(2, len(view.axes)))
    weights = (rule.optional("weight"), rule.optional("bias"))
    return _normalized(rule, function, view, over, ((1,), *weights))


def read_batch_norm(rule: Rule) -> Result:
    r"""Batch normalization in inference: (x - mean) times gamma / sqrt(variance + eps), plus beta.

    Every term is a contraction; the root stands in a region around the variance.
    """
    if rule.argument("training"):
        return None
    view = with_channels(rule.view("input"), batched=True)
    letters = axis_letters(view)
    held = letters[1:2]
    eps = float(rule.argument("eps"))
    root = Barrier("root", ("variance",), Function("rsqrt", (("eps", eps),)))
    factors = [Operand("variance", rule.view("running_var"), held, r"\sigma^{2}")]
    weight, bias = rule.optional("weight"), rule.optional("bias")
    if weight is not None:
        factors.append(Operand("scale", weight, held, r"\gamma"))
    mean = Operand("mean", rule.view("running_mean"), held, r"\mu")
    drafts = [
        Draft((Operand("X", view, letters), *factors), letters, (root,)),
        Draft((mean, *factors), letters, (root,), coefficient=-1.0),
    ]
    if bias is not None:
        drafts.append(Draft((Operand("shift", bias, held, r"\beta"),), letters))
    return rule.drafting.compute(rule.name, *drafts)
