"""Operations that bend: activations, sorting and pooling, with the steepest they can be."""

import math
from collections.abc import Callable
from typing import Any

from rankscope.layers.norm_preserving.householder import HouseholderActivation
from rankscope.layers.norm_preserving.sorting import GroupSort, MaxMin
from rankscope.robustness.affine_operations import argument
from rankscope.robustness.graph import Operation
from rankscope.robustness.meaning import (
    ConvexCurve,
    Form,
    Increasing,
    Largest,
    Meaning,
    Unshaped,
    fixed,
)

_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
# Steepest at √2: Φ(√2) + √2 φ(√2). Of the others, found where the second derivative is zero, and
# rounded up.
_GELU = 0.5 * (1 + math.erf(1)) + math.exp(-1) / math.sqrt(math.pi) + 1e-12
_GELU_BY_TANH, _SILU, _MISH = 1.1291, 1.0999, 1.0886

# Not looked into: as a whole they do not lengthen, but their parts, one by one, would.
SORTING_MODULES = (MaxMin, GroupSort, HouseholderActivation)

# The steepest slope, and the shape.
_CURVES: dict[str, tuple[float, Form]] = {
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


def _read_curve(operation: Operation) -> Meaning:
    if len(operation.inputs) != 1:
        raise operation.refuse("its limits depend on the input, so that its slope is not known")
    constant, form = _CURVES[operation.kind]
    return Meaning("steepest slope", fixed(constant), form)


def _read_gelu(operation: Operation) -> Meaning:
    is_exact = argument(operation, 1, "approximate", "none") == "none"
    return Meaning("steepest slope", fixed(_GELU if is_exact else _GELU_BY_TANH), Unshaped())


def _read_leaky(operation: Operation) -> Meaning:
    return _two_slopes(float(argument(operation, 1, "negative_slope", 0.01)))


def _read_prelu(operation: Operation) -> Meaning:
    slopes = [float(slope) for slope in argument(operation, 1, "weight").flatten()]
    return max((_two_slopes(slope) for slope in (*slopes, 1.0)), key=_preference)


def _preference(meaning: Meaning) -> tuple[float, bool]:
    """The steepest counts; among equals the one with the least known shape."""
    return meaning.growth()[0], isinstance(meaning.form, Unshaped)


def _two_slopes(slope: float) -> Meaning:
    form: Form = Unshaped() if slope < 0 else ConvexCurve() if slope <= 1 else Increasing()
    return Meaning("steepest slope", fixed(max(1.0, abs(slope))), form)


def _read_exponential_unit(operation: Operation) -> Meaning:
    alpha = float(argument(operation, 1, "alpha", 1.0))
    # `celu` keeps slope 1 at zero whatever alpha is; `elu` has slope alpha on the left of it.
    slope = alpha if operation.kind == "elu" else 1.0
    form: Form = Increasing() if slope > 0 else Unshaped()
    return Meaning("steepest slope", fixed(max(1.0, abs(slope))), form)


def _read_extreme(operation: Operation) -> Meaning:
    """The larger or smaller of two, or of all along axes."""
    form: Form = Largest() if operation.kind in ("maximum", "amax") else Increasing()
    if any(value.shape != operation.output.shape for value in operation.inputs) and (
        operation.kind in ("maximum", "minimum")
    ):
        raise operation.refuse("values of different shapes are not read")
    return Meaning("one entry each", fixed(*[1.0] * len(operation.inputs)), form, is_joint=True)


def _read_max_pool(operation: Operation) -> Meaning:
    """The largest of each window; an entry can be that of every window that it lies in."""
    axes = 1 if operation.kind == "max_pool1d" else 2
    kernel = _sizes(argument(operation, 1, "kernel_size"), axes)
    stride = _sizes(argument(operation, 2, "stride") or kernel, axes)
    dilation = _sizes(argument(operation, 4, "dilation", 1), axes)
    windows = math.prod(
        math.ceil(k / (s // math.gcd(s, d)))
        for k, s, d in zip(kernel, stride, dilation, strict=True)
    )
    return Meaning(f"entries in {windows} windows", fixed(math.sqrt(windows)), Largest())


def _sizes(given: Any, axes: int) -> tuple[int, ...]:
    if isinstance(given, int):
        return (given,) * axes
    sizes = tuple(given)
    return sizes * axes if len(sizes) == 1 else sizes


def _increasing(operation: Operation) -> Meaning:
    del operation
    return Meaning("sorts entries", fixed(1.0), Increasing())


def _turning(operation: Operation) -> Meaning:
    del operation
    return Meaning("reflects, or does not", fixed(1.0), Unshaped())


CURVES: dict[str, Callable[[Operation], Meaning]] = {
    **dict.fromkeys(_CURVES, _read_curve),
    **dict.fromkeys(("maximum", "minimum", "amax", "amin"), _read_extreme),
    **dict.fromkeys(("max_pool1d", "max_pool2d"), _read_max_pool),
    **dict.fromkeys(("elu", "celu"), _read_exponential_unit),
    **{module.__name__: _increasing for module in (MaxMin, GroupSort)},
    HouseholderActivation.__name__: _turning,
    "gelu": _read_gelu,
    "leaky_relu": _read_leaky,
    "prelu": _read_prelu,
}
