"""Rules for arithmetic and for functions entry by entry."""

import math
from collections.abc import Mapping
from typing import Any

from rankscope.diagrams.parts import Function, Role
from rankscope.reading.captions import fraction_label
from rankscope.reading.drafting import axis_letters
from rankscope.reading.drafts import Draft, Operand
from rankscope.reading.rules import Result, Rule
from rankscope.reading.trace import Value
from rankscope.reading.views import (
    GENERIC,
    ArrayView,
    Piece,
    Sort,
    scaled,
)

MAX_POWER = 4


def _is_number(part: object) -> bool:
    return isinstance(part, int | float) and not isinstance(part, bool)


def _term(rule: Rule, name: str) -> ArrayView | float | None:
    """An operand of a sum or a product: floating-point numbers, or None for anything else."""
    part = rule.argument(name)
    if _is_number(part):
        return float(part)
    if not isinstance(part, Value) or part.dtype != rule.output.dtype:
        return None
    fixed = rule.reading.tensors.get(part)
    if fixed is not None and fixed.numel() == 1 and not fixed.shape:
        return float(fixed)
    return rule.view(name)


def read_add(rule: Rule) -> Result:
    """A + alpha b, where either may be a number."""
    sign = -1.0 if rule.operation.kind in ("sub", "rsub") else 1.0
    alpha = rule.argument("alpha")
    coefficient = sign * float(1 if alpha is None else alpha)
    terms = [_term(rule, "self"), _term(rule, "other")]
    if None in terms or not any(isinstance(term, ArrayView) for term in terms):
        return None
    weights = (coefficient, 1.0) if rule.operation.kind == "rsub" else (1.0, coefficient)
    given = [term for term in terms if term is not None]
    return rule.drafting.add(rule.name, given, weights)


def read_multiply(rule: Rule) -> Result:
    """A product entry by entry, or by a number."""
    first, second = _term(rule, "self"), _term(rule, "other")
    if isinstance(first, float):
        first, second = second, first
    if not isinstance(first, ArrayView) or second is None:
        return None
    if isinstance(second, float):
        return scaled(first, second)
    return rule.drafting.multiply(rule.name, (first, second))


def read_divide(rule: Rule) -> Result:
    """A quotient: a product with the reciprocal."""
    first, second = _term(rule, "self"), _term(rule, "other")
    if rule.argument("rounding_mode") is not None or None in (first, second):
        return None
    if not isinstance(second, ArrayView):
        return scaled(first, 1.0 / second) if isinstance(first, ArrayView) and second else None
    over = rule.drafting.apply(f"{rule.name}.reciprocal", Function("reciprocal"), second)
    if not isinstance(first, ArrayView):
        return scaled(over, first or 0.0)
    return rule.drafting.multiply(rule.name, (first, over))


def read_negate(rule: Rule) -> Result:
    """-a."""
    return scaled(rule.view("self"), -1.0)


def read_power(rule: Rule) -> Result:
    """A whole power, as a product of a value with itself, or any other as a function."""
    exponent, view = rule.argument("exponent"), rule.view("self")
    if not _is_number(exponent):
        return None
    count = int(exponent)
    if count == exponent and 1 <= count <= MAX_POWER:
        return rule.drafting.multiply(rule.name, (view,) * count)
    function = Function("power", (("exponent", float(exponent)),))
    return rule.drafting.apply(rule.name, function, view)


def read_square(rule: Rule) -> Result:
    """A square."""
    return rule.drafting.multiply(rule.name, (rule.view("self"),) * 2)


def read_norm(rule: Rule) -> Result:
    """The Euclidean norm along some axes: the root of a sum of squares."""
    if rule.argument("ord") != 2 or rule.argument("dtype") is not None:
        return None
    view = rule.view("self")
    given = rule.argument("dim")
    axes = range(len(view.axes)) if given is None else [view.position(axis) for axis in given]
    letters = axis_letters(view)
    kept = tuple(letter for axis, letter in enumerate(letters) if axis not in axes)
    operands = (Operand("X", view, letters), Operand("X2", view, letters))
    squares = rule.drafting.compute(f"{rule.name}.squares", Draft(operands, kept))
    root = rule.drafting.apply(rule.name, Function("sqrt"), squares)
    return rule.reshape(root, rule.output.shape)


def read_add_product(rule: Rule) -> Result:
    """A + value b c, entry by entry."""
    terms = [_term(rule, name) for name in ("self", "tensor1", "tensor2")]
    added, first, second = terms
    if not (isinstance(first, ArrayView) and isinstance(second, ArrayView)) or added is None:
        return None
    product = rule.drafting.multiply(f"{rule.name}.product", (first, second))
    return rule.drafting.add(rule.name, (added, product), (1.0, float(rule.argument("value"))))


def read_mean(rule: Rule) -> Result:
    """A mean or a sum over some axes: a sum against a constant."""
    view = rule.view("self")
    if not view.axes:
        return view
    given = rule.argument("dim")
    chosen = range(len(view.axes)) if not given and given != 0 else given
    axes = [view.position(axis) for axis in ([chosen] if isinstance(chosen, int) else chosen)]
    count = math.prod(view.shape[axis] for axis in axes)
    weight = 1.0 / count if rule.operation.kind == "mean" else 1.0
    letters = axis_letters(view)
    pieces = tuple(Piece(view.shape[axis], _sort(view, axis)) for axis in axes)
    constant = ArrayView(
        "constant", pieces, tuple((piece,) for piece in pieces), Role.CONSTANT, fill=weight
    )
    # The constant holds the summed legs outside any barrier that the value is drawn with.
    operands = (
        Operand("X", view, letters),
        Operand("average", constant, tuple(letters[a] for a in axes), fraction_label(weight)),
    )
    kept = tuple(letter for axis, letter in enumerate(letters) if axis not in axes)
    total = rule.drafting.compute(rule.name, Draft(operands, kept))
    return rule.reshape(total, rule.output.shape)


def _sort(view: ArrayView, axis: int) -> Sort:
    return view.axes[axis][0].sort if view.axes[axis] else GENERIC


# The function of a region that an operation is, and its options by the names of the operation.
FUNCTIONS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "relu": ("relu", {}),
    "relu6": ("relu6", {}),
    "leaky_relu": ("leaky_relu", {"negative_slope": "negative_slope"}),
    "gelu": ("gelu", {"approximate": "approximate"}),
    "silu": ("silu", {}),
    "tanh": ("tanh", {}),
    "sigmoid": ("sigmoid", {}),
    "softplus": ("softplus", {"beta": "beta", "threshold": "threshold"}),
    "exp": ("exp", {}),
    "log": ("log", {}),
    "sqrt": ("sqrt", {}),
    "rsqrt": ("rsqrt", {}),
    "reciprocal": ("reciprocal", {}),
    "sin": ("sin", {}),
    "cos": ("cos", {}),
    "abs": ("abs", {}),
    "erf": ("erf", {}),
    "hardtanh": ("hardtanh", {"min_val": "min_val", "max_val": "max_val"}),
    "hardswish": ("hardswish", {}),
    "hardsigmoid": ("hardsigmoid", {}),
    "mish": ("mish", {}),
    "selu": ("selu", {}),
    "log_sigmoid": ("log_sigmoid", {}),
    "clamp": ("clamp", {"min": "min", "max": "max"}),
    "clamp_min": ("clamp", {"min": "min"}),
    "clamp_max": ("clamp", {"max": "max"}),
}


def read_function(rule: Rule) -> Result:
    """A function entry by entry: a region around one value."""
    name, options = FUNCTIONS[rule.operation.kind]
    given = {ours: rule.argument(theirs) for ours, theirs in options.items()}
    return _applied(rule, name, given)


def read_elu(rule: Rule) -> Result:
    """ELU, whose other scales are 1."""
    if float(rule.argument("scale")) != 1.0 or float(rule.argument("input_scale")) != 1.0:
        return None
    return _applied(rule, "elu", {"alpha": rule.argument("alpha")})


def _applied(rule: Rule, name: str, given: Mapping[str, Any]) -> Result:
    if any(isinstance(option, Value) for option in given.values()):
        return None
    usual = dict(Function(name).recipe.options)
    options = {
        key: option if isinstance(option, str) else float(option)
        for key, option in given.items()
        if option is not None
    }
    changed = tuple((key, option) for key, option in options.items() if option != usual[key])
    view = rule.view(next(iter(rule.operation.arguments)))
    return rule.drafting.apply(rule.name, Function(name, changed), view)


def read_softmax(rule: Rule) -> Result:
    """Softmax or its logarithm over one axis."""
    view = rule.view("self")
    if not view.axes or rule.argument("dtype") not in (None, rule.output.dtype):
        return None
    name = "log_softmax" if rule.operation.kind == "log_softmax" else "softmax"
    return rule.drafting.apply(rule.name, Function(name), view, (rule.axis("dim", len(view.axes)),))
