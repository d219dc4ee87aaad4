"""What each operation does to distances and to intervals: its transfer function.

One table, by the name of the ATen operation or of the class of a module that is taken whole, says
how a change of an operation's inputs becomes a change of its output. Lipschitz constants, intervals
and linear bounds are all read from it: a new operation is one entry.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import UnsupportedModuleError
from rankscope.factorize.convolution import FactorizedConv1d, FactorizedConv2d
from rankscope.factorize.linear import FactorizedLinear
from rankscope.reading.exporting import Shape
from rankscope.reading.trace import Value, is_random
from rankscope.robust.graph import Graph, Node, Reading, sample_shape
from rankscope.robust.norm_preserving import GroupSort, HouseholderActivation, MaxMin
from rankscope.robust.operator_norms import ORTHOGONAL, operator_norm, plain_form
from rankscope.robust.orthogonal import OrthogonalConv1d, OrthogonalConv2d

_ROUNDING = 1 + 1e-12  # of a sum of float64 numbers of one sign
_BUILT = 1 + 1e-6  # of a kernel that is built from parameters in the model's precision


# --- Transfer functions ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Affine:
    """Linear in all inputs together, plus a constant.

    Args:
        spread: half widths of intervals at the inputs to those at the output: the same map with
            the absolute values of its entries, and no constant.
    """

    spread: Callable[..., Tensor]


@dataclass(frozen=True)
class ConvexCurve:
    """A function of each entry alone that is convex, and straight below and above zero.

    Args:
        lowest: where it is smallest; -inf if it never falls.
    """

    lowest: float = -float("inf")


@dataclass(frozen=True)
class Largest:
    """The largest of some entries: convex and increasing, but not of each entry alone."""


@dataclass(frozen=True)
class Increasing:
    """No output falls when an input rises."""


@dataclass(frozen=True)
class Unshaped:
    """Nothing is known but how fast it changes."""


Form = Affine | ConvexCurve | Largest | Increasing | Unshaped


@dataclass(frozen=True, eq=False)
class TransferFunction:
    """How an operation treats a change of its inputs.

    Args:
        rule: where its constants come from, in words.
        growth: by how much a change of each input can grow, in the Euclidean norm; computed when
            asked for, as it may take singular values.
        form: its shape, for those who propagate intervals.
        is_joint: whether every output depends on entries of one input, or the largest of several:
            then changes add up by their squares.
        is_selection: whether its outputs are some of the entries of its one input.
    """

    rule: str
    growth: Callable[[], tuple[float, ...]]
    form: Form
    is_joint: bool = False
    is_selection: bool = False


def _known_growth(*constants: float) -> Callable[[], tuple[float, ...]]:
    """Growth that is known already."""
    return lambda: constants


def read_transfer_functions(
    model: nn.Module,
    input_shape: Shape,
    *,
    dtype: torch.dtype | None = None,
    reader: str = "lipschitz_bound",
) -> tuple[Graph, tuple[TransferFunction, ...]]:
    """A model's operations, and what each of them does to a change of its inputs.

    Args:
        model: in any mode; it is not changed.
        input_shape: of one sample.
        dtype: of the inputs; None for that of the model's parameters.
        reader: who asks, as a user calls it; refusals begin with it.

    Raises:
        UnsupportedModuleError: if one of them is not known, with its name and the reason, or the
            model takes samples together, is random or looks at numbers.
        SizeError: if the model does not take such inputs.
    """
    read = Reading(model, input_shape, wholes=_is_taken_whole, dtype=dtype, reader=reader)
    # What has no rule is refused first: of attention, the product says more than the axes.
    for node in read.nodes:
        if node.kind not in _RULES:
            raise node.refusal(_reason(node))
    graph = read.graph()
    return graph, tuple(_RULES[node.kind](node) for node in graph.nodes)


def _reason(node: Node) -> str:
    if node.kind in _REASONS:
        return _REASONS[node.kind]
    if is_random(node.source):
        return "it is random in inference mode, so that nothing can be said about outputs"
    return "its Lipschitz constant is not known here"


# --- Linear maps with weights ----------------------------------------------------------------


def _read_layer(node: Node) -> TransferFunction:
    """A layer taken whole: its norm on inputs of the size that it gets."""
    assert node.module is not None  # every kind that is read here is a class of modules
    return _measured_growth(node, plain_form(node.module))


def _measured_growth(node: Node, layer: nn.Module) -> TransferFunction:
    return TransferFunction(
        "operator norm, measured",
        lambda: (_norm(node, layer),),
        Affine(lambda radii: _absolute(node, layer).to(radii)(radii)),
    )


def _norm(node: Node, layer: nn.Module) -> float:
    shape = sample_shape(node.inputs[0])
    try:
        # A linear map acts on the last axis alone, however many there are before it.
        upper = operator_norm(layer, shape[-1:] if isinstance(layer, nn.Linear) else shape).upper
    except UnsupportedModuleError as error:
        raise node.refusal(str(error).rstrip(".")) from error
    return upper * (_BUILT if isinstance(layer, ORTHOGONAL) else 1.0)


def _absolute(node: Node, layer: nn.Module) -> nn.Module:
    if isinstance(layer, OrthogonalConv1d):
        layer = layer.to_conv1d()
    elif isinstance(layer, OrthogonalConv2d):
        layer = layer.to_conv2d()
    elif isinstance(layer, ORTHOGONAL):
        raise node.refusal("intervals do not go through it; use the method Lipschitz")
    clone = copy.deepcopy(layer).requires_grad_(requires_grad=False)
    for name, weight in clone.named_parameters():
        weight.copy_(torch.zeros_like(weight) if name.endswith("bias") else weight.abs())
    return clone


def _read_linear(node: Node) -> TransferFunction:
    """A product with a matrix that does not depend on the input."""
    return _matrix(node, _fixed_argument(node, "weight"))


def _read_matmul(node: Node) -> TransferFunction:
    """A product with a matrix from the right."""
    second = node["mat2"] if node.kind == "mm" else node["other"]
    if not isinstance(node["self"], Value) or getattr(second, "ndim", 0) != 2:
        raise node.refusal("only a product with a fixed matrix on the right is known")
    return _matrix(node, second.T)


def _matrix(node: Node, weight: Tensor) -> TransferFunction:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False).to(weight)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return TransferFunction(
        "operator norm, measured",
        lambda: (_norm(node, layer),),
        Affine(lambda radii: functional.linear(radii, weight.abs().to(radii))),
    )


_CONVOLUTIONS = {
    "conv1d": nn.Conv1d,
    "conv2d": nn.Conv2d,
    "conv_transpose1d": nn.ConvTranspose1d,
    "conv_transpose2d": nn.ConvTranspose2d,
}


def _read_convolution(node: Node) -> TransferFunction:
    """A convolution with a fixed kernel, or the adjoint of one."""
    weight = _fixed_argument(node, "weight")
    names = {"stride", "padding", "dilation", "groups", "output_padding"} & set(node.arguments)
    settings = {name: _setting(node[name]) for name in names}
    across, along = weight.shape[0], weight.shape[1] * settings["groups"]
    channels = (across, along) if node.kind.startswith("conv_transpose") else (along, across)
    kernel = tuple(weight.shape[2:])
    layer = _CONVOLUTIONS[node.kind](*channels, kernel, bias=False, **settings).to(weight)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return _measured_growth(node, layer)


def _setting(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _fixed_argument(node: Node, argument: str) -> Tensor:
    if isinstance(node[argument], Value):
        raise node.refusal(f"its {argument} depends on the input: {_PRODUCT}")
    weight: Tensor = node[argument]
    return weight


def _read_batch_norm(node: Node) -> TransferFunction:
    """Read a batch normalization in inference mode: a scale for each channel."""
    scale = normalization_scale(node).abs()
    axes = len(sample_shape(node.output)) - 1
    return TransferFunction(
        "largest scale of a channel",
        _known_growth(float(scale.max()) * _ROUNDING),
        Affine(lambda radii: radii * scale.to(radii).view(-1, *[1] * axes)),
    )


def normalization_scale(node: Node) -> Tensor:
    """Scale of each channel by a batch normalization in inference mode, in float64."""
    scale: Tensor = (node["running_var"].double() + node["eps"]).rsqrt()
    weight = node["weight"]
    return scale if weight is None else scale * weight.double()


# --- Sums, products with numbers, entries moved around ---------------------------------------


def _read_sum(node: Node) -> TransferFunction:
    """Sums and differences of values and fixed tensors."""
    alpha = abs(float(node["alpha"]))
    terms = (node["self"], 1.0), (node["other"], alpha)
    if node.kind == "rsub":
        terms = (node["self"], alpha), (node["other"], 1.0)
    weights = [weight for given, weight in terms if isinstance(given, Value)]
    growth = (w * _repeats(node, v) for w, v in zip(weights, node.inputs, strict=True))
    size = sample_shape(node.output)
    return TransferFunction(
        "sum",
        _known_growth(*growth),
        Affine(
            lambda *radii: sum(
                (w * r for w, r in zip(weights, radii, strict=True)),
                radii[0].new_zeros(len(radii[0]), *size),
            )
        ),
    )


def _read_scaling(node: Node) -> TransferFunction:
    """Products and quotients with fixed numbers."""
    first, second = node["self"], node["other"]
    is_quotient = node.kind == "div"
    if is_quotient and isinstance(second, Value):
        raise node.refusal(_QUOTIENT)
    if len(node.inputs) != 1:
        raise node.refusal("both sides depend on the input, so that nothing bounds it")
    if is_quotient and node.arguments.get("rounding_mode") is not None:
        raise node.refusal("rounding jumps")
    factor = torch.as_tensor(second if isinstance(first, Value) else first).double()
    factor = (1 / factor if is_quotient else factor).abs()
    largest = float(factor.max()) * _repeats(node, node.inputs[0]) * _ROUNDING
    return TransferFunction(
        "largest factor", _known_growth(largest), Affine(lambda radii: radii * factor.to(radii))
    )


def _repeats(node: Node, value: Value) -> float:
    """Factor by which a value grows because its entries are used several times."""
    return math.sqrt(math.prod(sample_shape(node.output)) / math.prod(sample_shape(value)))


def _read_negation(node: Node) -> TransferFunction:
    """A change of sign."""
    del node
    return TransferFunction("sign", _known_growth(1.0), Affine(lambda radii: radii))


def _read_joining(node: Node) -> TransferFunction:
    """Values side by side, or one written into a part of another."""
    growth = _known_growth(*[1.0] * len(node.inputs))
    return TransferFunction("side by side", growth, Affine(_linear_part(node)), is_joint=True)


def _read_constant(node: Node) -> TransferFunction:
    """A tensor made in the shape of a value, whatever its numbers are."""
    size = sample_shape(node.output)
    return TransferFunction(
        "fixed", _known_growth(0.0), Affine(lambda radii: radii.new_zeros(len(radii), *size))
    )


def _read_average(node: Node) -> TransferFunction:
    r"""Sums of entries with weights that are not negative, and entries moved around.

    The norm of such a matrix is at most :math:`\sqrt{\text{largest sum of a row} \cdot
    \text{largest sum of a column}}`, which is exact for averages over blocks and for copies.
    """
    if len(node.inputs) != 1:
        raise node.refusal("it takes more than one value that depends on the input")
    return TransferFunction(
        "sums of rows and columns",
        lambda: (_row_and_column_sums(node),),
        Affine(_linear_part(node)),
        is_selection=node.kind in _SELECTIONS,
    )


def _linear_part(node: Node) -> Callable[..., Tensor]:
    return lambda *radii: node.run(*radii) - node.run(*map(torch.zeros_like, radii))


def _row_and_column_sums(node: Node) -> float:
    zeros = torch.zeros(1, *sample_shape(node.inputs[0]), dtype=torch.float64)
    outputs, pull_back = torch.func.vjp(node.run, zeros)[:2]
    rows = node.run(torch.ones_like(zeros)) - outputs
    (columns,) = pull_back(torch.ones_like(outputs))
    return math.sqrt(float(rows.max()) * float(columns.max())) * _ROUNDING


_SELECTIONS = (
    *("chunk", "split", "tensor_split", "split_with_sizes"),
    *("narrow", "slice", "select", "unbind"),
)
_MOVES = (
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand"),
    *("permute", "transpose", "t", "movedim", "roll", "flip", "pad", "constant_pad_nd"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "to", *_SELECTIONS),
)
_MEANS = (
    *("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "mean", "sum"),
)


# --- Activations, sorting and pooling --------------------------------------------------------


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
# Steepest at √2: Φ(√2) + √2 φ(√2). Of the others, where the second derivative is zero, rounded up.
_GELU = 0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi) + 1e-12
_GELU_BY_TANH, _SILU, _MISH = 1.1291, 1.0999, 1.0886

# The steepest slope, and the shape.
CURVES: dict[str, tuple[float, Form]] = {
    "relu": (1.0, ConvexCurve()),
    "abs": (1.0, ConvexCurve(lowest=0.0)),
    "relu6": (1.0, Increasing()),
    "hardtanh": (1.0, Increasing()),
    "clamp": (1.0, Increasing()),
    "clip": (1.0, Increasing()),
    "tanh": (1.0, Increasing()),
    "sigmoid": (0.25, Increasing()),
    "hardsigmoid": (1 / 6, Increasing()),
    "log_sigmoid": (1.0, Increasing()),
    "softsign": (1.0, Increasing()),
    "softshrink": (1.0, Increasing()),
    "tanhshrink": (1.0, Increasing()),
    "softplus": (1.0, Increasing()),
    "atan": (1.0, Increasing()),
    "erf": (2 / math.sqrt(math.pi), Increasing()),
    "selu": (_SELU_SCALE * _SELU_ALPHA + 1e-12, Increasing()),
    "sin": (1.0, Unshaped()),
    "cos": (1.0, Unshaped()),
    "silu": (_SILU, Unshaped()),
    "mish": (_MISH, Unshaped()),
    "hardswish": (1.5, Unshaped()),
    # Its derivative diag(p) - p pᵀ has rows whose absolute values add up to 2 p (1 - p).
    "softmax": (0.5, Unshaped()),
}


def _read_curve(node: Node) -> TransferFunction:
    if len(node.inputs) != 1:
        raise node.refusal("its limits depend on the input, so that its slope is not known")
    constant, form = CURVES[node.kind]
    return TransferFunction("steepest slope", _known_growth(constant), form)


def _read_gelu(node: Node) -> TransferFunction:
    constant = _GELU if node["approximate"] == "none" else _GELU_BY_TANH
    return TransferFunction("steepest slope", _known_growth(constant), Unshaped())


def _read_leaky(node: Node) -> TransferFunction:
    return _two_slopes(float(node["negative_slope"]))


def _read_prelu(node: Node) -> TransferFunction:
    slopes = [float(slope) for slope in _fixed_argument(node, "weight").flatten()]
    return max((_two_slopes(slope) for slope in (*slopes, 1.0)), key=_preference)


def _preference(transfer: TransferFunction) -> tuple[float, bool]:
    """The steepest counts; among equals the one with the least known shape."""
    return transfer.growth()[0], isinstance(transfer.form, Unshaped)


def _two_slopes(slope: float) -> TransferFunction:
    form: Form = Unshaped() if slope < 0 else ConvexCurve() if slope <= 1 else Increasing()
    return TransferFunction("steepest slope", _known_growth(max(1.0, abs(slope))), form)


def _read_exponential_unit(node: Node) -> TransferFunction:
    # `celu` keeps slope 1 at zero whatever alpha is; `elu` has slope alpha on the left of it.
    slope = float(node["alpha"]) if node.kind == "elu" else 1.0
    form: Form = Increasing() if slope > 0 else Unshaped()
    return TransferFunction("steepest slope", _known_growth(max(1.0, abs(slope))), form)


def _read_extreme(node: Node) -> TransferFunction:
    """The larger or smaller of two, or of all along axes."""
    form: Form = Largest() if node.kind in ("maximum", "amax") else Increasing()
    if node.kind in ("maximum", "minimum") and any(
        value.shape != node.output.shape for value in node.inputs
    ):
        raise node.refusal("values of different shapes are not read")
    growth = _known_growth(*[1.0] * len(node.inputs))
    return TransferFunction("one entry each", growth, form, is_joint=True)


def _read_max_pool(node: Node) -> TransferFunction:
    """The largest of each window; an entry can be that of every window that it lies in."""
    axes = 1 if node.kind == "max_pool1d" else 2
    kernel = _sizes(node["kernel_size"], axes)
    stride = _sizes(node["stride"] or kernel, axes)
    dilation = _sizes(node["dilation"], axes)
    windows = math.prod(
        math.ceil(k / (s // math.gcd(s, d)))
        for k, s, d in zip(kernel, stride, dilation, strict=True)
    )
    growth = _known_growth(math.sqrt(windows))
    return TransferFunction(f"entries in {windows} windows", growth, Largest())


def _sizes(given: int | Sequence[int], axes: int) -> tuple[int, ...]:
    sizes = (given,) if isinstance(given, int) else tuple(given)
    return sizes * axes if len(sizes) == 1 else sizes


def _read_sorting(node: Node) -> TransferFunction:
    del node
    return TransferFunction("sorts entries", _known_growth(1.0), Increasing())


def _read_reflection(node: Node) -> TransferFunction:
    del node
    return TransferFunction("reflects, or does not", _known_growth(1.0), Unshaped())


# --- The table -------------------------------------------------------------------------------


# Modules whose parts, one by one, say less than the whole.
_FACTORIZED = (FactorizedLinear, FactorizedConv1d, FactorizedConv2d)
_LAYERS = (nn.Conv1d, nn.Conv2d, *ORTHOGONAL, *_FACTORIZED)
_SORTING = (MaxMin, GroupSort)


def _is_taken_whole(module: nn.Module) -> bool:
    # A convolution that pads by anything but zeros is two operations, and one circle.
    if isinstance(module, (nn.Conv1d, nn.Conv2d)):
        return module.padding_mode != "zeros"
    wholes = (*ORTHOGONAL, *_FACTORIZED, *_SORTING, HouseholderActivation)
    return isinstance(module, wholes)


_RULES: dict[str, Callable[[Node], TransferFunction]] = {
    **{module.__name__: _read_layer for module in _LAYERS},
    **dict.fromkeys(_CONVOLUTIONS, _read_convolution),
    "linear": _read_linear,
    **dict.fromkeys(("matmul", "mm"), _read_matmul),
    "batch_norm": _read_batch_norm,
    **dict.fromkeys(("add", "sub", "rsub"), _read_sum),
    **dict.fromkeys(("mul", "div"), _read_scaling),
    "neg": _read_negation,
    **dict.fromkeys(("cat", "stack", "slice_scatter"), _read_joining),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like"), _read_constant),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full"), _read_constant),
    **dict.fromkeys((*_MOVES, *_MEANS), _read_average),
    **dict.fromkeys(CURVES, _read_curve),
    "gelu": _read_gelu,
    "leaky_relu": _read_leaky,
    "prelu": _read_prelu,
    **dict.fromkeys(("elu", "celu"), _read_exponential_unit),
    **dict.fromkeys(("maximum", "minimum", "amax", "amin"), _read_extreme),
    **dict.fromkeys(("max_pool1d", "max_pool2d"), _read_max_pool),
    **{module.__name__: _read_sorting for module in _SORTING},
    HouseholderActivation.__name__: _read_reflection,
}

_PRODUCT = "it multiplies values that both depend on the input, so that nothing bounds it"
_QUOTIENT = "it divides by a value that depends on the input, which may be as small as it likes"
_DEVIATION = "it divides by the deviation of its input, which may be as small as it likes"
# Why an operation has no rule, where more can be said than that.
_REASONS = {
    "scaled_dot_product_attention": f"attention: {_PRODUCT}",
    **dict.fromkeys(("einsum", "bmm", "baddbmm", "square", "pow", "bilinear"), _PRODUCT),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), f"gates and states: {_PRODUCT}"),
    **dict.fromkeys(("reciprocal", "rsqrt"), _QUOTIENT),
    "exp": "its slope grows without bound",
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), _DEVIATION),
    **dict.fromkeys(("group_norm", "native_group_norm", "instance_norm"), _DEVIATION),
    "_native_batch_norm_legit": (
        "it takes samples together: it divides by the deviation of the batch itself"
    ),
    "normalize": "it divides by the norm of its input, which may be as small as it likes",
}
