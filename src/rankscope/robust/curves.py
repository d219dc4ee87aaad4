"""Rules for activations, softmax, powers and normalizations: slopes, ranges and rounding."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rankscope.reading.trace import Value
from rankscope.robust.forms import (
    PRODUCT,
    QUOTIENT,
    ConvexCurve,
    Form,
    Increasing,
    TransferFunction,
    Unshaped,
    fixed_argument,
    infinite,
    known_growth,
    no_growth,
    own_arithmetic,
    relative,
)
from rankscope.robust.graph import Node, sample_shape
from rankscope.robust.relaxations import (
    Bend,
    Standardization,
    bend,
    exponential,
    positive_curve,
    power,
    softmax,
    softmax_rounding,
)
from rankscope.robust.rounding import LIBRARY, Rounding, above

_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
# Steepest at √2: Φ(√2) + √2 φ(√2). Of the others, where the second derivative is zero, rounded up.
_GELU = 0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi) + 1e-12
_GELU_BY_TANH, _SILU, _MISH = 1.1291, 1.0999, 1.0886

# The steepest slope, the second derivative, and where the function turns; all rounded up.
BENDS = {
    "tanh": Bend(1.0, 0.7699),
    "sigmoid": Bend(0.25, 0.0963),
    "log_sigmoid": Bend(1.0, 0.25),
    "softsign": Bend(1.0, 2.0),
    "tanhshrink": Bend(1.0, 0.7699),
    "atan": Bend(1.0, 0.6496),
    "erf": Bend(2 / math.sqrt(math.pi) + 1e-12, 0.9679),
    "sin": Bend(1.0, 1.0, is_wave=True),
    "cos": Bend(1.0, 1.0, is_wave=True),
    "silu": Bend(_SILU, 0.5, -1.2784645427610738),
    "mish": Bend(_MISH, 0.65, -1.1924312145154952),
}
_GELUS = {
    "none": Bend(_GELU, 0.798, -0.7517915246935645),
    "tanh": Bend(_GELU_BY_TANH, 0.798, -0.7524614220710163),
}
# The steepest slope, and the shape.
CURVES: dict[str, tuple[float, Form]] = {
    "relu": (1.0, ConvexCurve()),
    "abs": (1.0, ConvexCurve(lowest=0.0)),
    "relu6": (1.0, Increasing()),
    "hardtanh": (1.0, Increasing()),
    "clamp": (1.0, Increasing()),
    "clip": (1.0, Increasing()),
    "hardsigmoid": (above(1 / 6), Increasing()),
    "softshrink": (1.0, Increasing()),
    "selu": (_SELU_SCALE * _SELU_ALPHA + 1e-12, Increasing()),
    "hardswish": (1.5, Increasing(since=-1.5)),
}
_COMPARED = ("relu", "abs", "relu6", "hardtanh", "clamp", "clip")
# Of curves that are computed, as torch does it: at most so many roundings of 2 |x| + 2.
_COMPUTED = Rounding(LIBRARY, lambda sizes: 2 * sizes, 2.0)


def read_curve(node: Node) -> TransferFunction:
    """A function of each entry alone, from the tables."""
    if len(node.inputs) != 1:
        raise node.refusal("its limits depend on the input, so that its slope is not known")
    if node.kind in BENDS:
        return _bent(node, BENDS[node.kind])
    constant, form = CURVES[node.kind]
    # A limit such as 0.1 is rounded to the model's floats before entries are compared with it.
    limits = [float(v) for v in node.arguments.values() if isinstance(v, (int, float))]
    offset = max(map(abs, limits), default=0.0)
    compared = Rounding(1, torch.zeros_like, offset) if offset else None
    rounding = compared if node.kind in _COMPARED else _COMPUTED
    return TransferFunction("steepest slope", known_growth(constant), form, rounding=rounding)


def _bent(node: Node, known: Bend) -> TransferFunction:
    growth = known_growth(known.steepest)
    return TransferFunction("steepest slope", growth, bend(node, known), rounding=_COMPUTED)


def read_gelu(node: Node) -> TransferFunction:
    """GELU, exact or by tanh."""
    return _bent(node, _GELUS[node["approximate"]])


def read_softplus(node: Node) -> TransferFunction:
    """Smooth, but torch goes over to the straight line at its threshold."""
    beta, threshold = float(node["beta"]), float(node["threshold"])
    if beta <= 0:
        raise node.refusal(f"beta must be positive, got {beta}")
    jump = math.exp(-threshold) / beta
    share = jump / (LIBRARY * own_arithmetic(node).unit)
    return TransferFunction(
        "steepest slope",
        known_growth(1.0),
        bend(node, Bend(1.0, above(beta / 4)), jump=jump),
        rounding=Rounding(LIBRARY, lambda sizes: 2 * sizes, 2.0 + 2 / beta + share),
    )


def read_softmax(node: Node) -> TransferFunction:
    """Its derivative diag(p) - p pᵀ has rows whose absolute values add up to 2 p (1 - p)."""
    axis = int(node["dim"])
    # Counted in the trace, where a value may lack the axis of the samples.
    axis = axis if axis < 0 else axis - len(node.source.output.shape)
    if axis < -len(sample_shape(node.inputs[0])):
        raise node.refusal("it is taken along the samples")
    mask = node.arguments.get("mask")
    length = node.inputs[0].shape[axis]
    return TransferFunction(
        "steepest slope",
        known_growth(0.5),
        softmax(axis, mask),
        rounding=softmax_rounding(axis, length, mask, own_arithmetic(node)),
    )


def read_exponential(node: Node) -> TransferFunction:
    """The exponential: bounded on a box only."""
    refused = no_growth(node, "its slope grows without bound")
    return TransferFunction("exponential", refused, exponential(node), rounding=relative(LIBRARY))


def read_power(node: Node) -> TransferFunction:
    """Whole powers, roots and reciprocals."""
    exponent = 2 if node.kind == "square" else node["exponent"]
    refused = no_growth(node, PRODUCT)
    if exponent in _ROOTS:
        return _positive(node, _ROOTS[exponent])
    if isinstance(exponent, Value) or exponent != int(exponent) or exponent < 1:
        raise node.refusal(f"only whole powers of at least 1, -1, 1/2 and -1/2, got {exponent}")
    return TransferFunction(
        "power", refused, power(node, int(exponent)), rounding=relative(LIBRARY + int(exponent))
    )


_ROOTS = {-1: "reciprocal", 0.5: "sqrt", -0.5: "rsqrt"}
POSITIVE: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "rsqrt": (lambda x: x**-1.5, lambda x: x**-2.5),
    "sqrt": (lambda x: x**-0.5, lambda x: x**-1.5),
    "reciprocal": (lambda x: x**-2.0, lambda x: 2.01 * x**-3.0),
    "log": (lambda x: 1.01 / x, lambda x: 1.01 * x**-2.0),
}


def read_positive(node: Node) -> TransferFunction:
    """Roots, reciprocals and logarithms of positive numbers."""
    return _positive(node, node.kind)


def _positive(node: Node, kind: str) -> TransferFunction:
    slope, curvature = POSITIVE[kind]
    refused = no_growth(node, QUOTIENT)
    rounding = relative(LIBRARY) if kind != "log" else Rounding(LIBRARY, infinite, of_box=_logs)
    return TransferFunction(
        kind, refused, positive_curve(node, slope, curvature), rounding=rounding
    )


def _logs(ends: Sequence[tuple[Tensor, Tensor]], results: Tensor) -> Tensor:
    del ends
    return results + 1


def read_normalization(node: Node) -> TransferFunction:
    """Layer and root-mean-square normalization."""
    shape = tuple(node["normalized_shape"])
    value = node.inputs[0]
    if len(node.inputs) != 1:
        raise node.refusal("its weights depend on the input")
    if len(shape) >= len(value.shape):
        raise node.refusal("it takes samples together")
    epsilon = node.arguments.get("eps")
    if epsilon is None:
        assert value.dtype is not None  # a value that is normalized is a tensor
        epsilon = torch.finfo(value.dtype).eps
    known = Standardization(
        len(shape),
        node.kind != "rms_norm",
        float(epsilon),
        _double(node["weight"]),
        _double(node.arguments.get("bias")),
    )
    return TransferFunction(
        "where all numbers are equal",
        known_growth(above(known.steepest(), 8)),
        known.form(),
        rounding=known.rounding(math.prod(shape), own_arithmetic(node)),
    )


def _double(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach().double()


def read_leaky(node: Node) -> TransferFunction:
    """One slope below zero, 1 above."""
    return _two_slopes(float(node["negative_slope"]))


def read_prelu(node: Node) -> TransferFunction:
    """A slope below zero for each channel, 1 above."""
    slopes = [float(slope) for slope in fixed_argument(node, "weight").flatten()]
    return max((_two_slopes(slope) for slope in (*slopes, 1.0)), key=_preference)


def _preference(transfer: TransferFunction) -> tuple[float, bool]:
    """The steepest counts; among equals the one with the least known shape."""
    return transfer.growth()[0], isinstance(transfer.form, Unshaped)


def _two_slopes(slope: float) -> TransferFunction:
    form: Form = Unshaped() if slope < 0 else ConvexCurve() if slope <= 1 else Increasing()
    steepest = max(1.0, abs(slope))
    return TransferFunction(
        "steepest slope",
        known_growth(steepest),
        form,
        rounding=Rounding(2, lambda sizes: steepest * sizes),
    )


def read_exponential_unit(node: Node) -> TransferFunction:
    """ELU and CELU."""
    # `celu` keeps slope 1 at zero whatever alpha is; `elu` has slope alpha on the left of it.
    alpha = float(node["alpha"])
    slope = alpha if node.kind == "elu" else 1.0
    form: Form = Increasing() if slope > 0 else Unshaped()
    if slope == 1 and alpha > 0:
        form = bend(node, Bend(1.0, above(1 / alpha)))
    steepest = max(1.0, abs(slope))
    rounding = Rounding(LIBRARY, lambda sizes: 2 * steepest * sizes, 2 * (1 + abs(alpha)))
    return TransferFunction("steepest slope", known_growth(steepest), form, rounding=rounding)
