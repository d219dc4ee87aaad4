"""Operations that are linear plus a constant: weights, sums, averages, and entries moved around."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import UnsupportedModuleError
from rankscope.layers.convolution import FactorizedConv1d, FactorizedConv2d
from rankscope.layers.linear import FactorizedLinear
from rankscope.layers.orthogonal.convolution import (
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
)
from rankscope.robustness.graph import Operation
from rankscope.robustness.linear_map import plain_form
from rankscope.robustness.meaning import Affine, Meaning, fixed
from rankscope.robustness.operator_norms import operator_norm
from rankscope.robustness.recording import Value

_ORTHOGONAL = (
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
)
# Not looked into: their norms are measured as a whole.
LINEAR_MODULES = (
    nn.Conv1d,
    nn.Conv2d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    *_ORTHOGONAL,
    FactorizedLinear,
    FactorizedConv1d,
    FactorizedConv2d,
)
_SELECTIONS = (
    *("chunk", "split", "tensor_split", "split_with_sizes"),
    *("narrow", "getitem", "select", "unbind"),
)
_MOVES = (
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as"),
    *("permute", "transpose", "t", "T", "mT", "movedim", "swapaxes", "roll", "flip", "pad"),
    *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"),
    *("contiguous", "clone", "to", "float", "double", "type_as", "dropout", "dropout2d"),
)
_MEANS = (
    *("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "mean", "sum"),
)
_BUILT = 1 + 1e-6
_ROUNDING = 1 + 1e-12  # of a sum of float64 numbers of one sign


def argument(operation: Operation, place: int, name: str, default: Any = None) -> Any:
    """What a function was given at a place or by name."""
    if place < len(operation.arguments):
        return operation.arguments[place]
    return operation.options.get(name, default)


def read_module(operation: Operation) -> Meaning:
    """A layer taken whole: its norm on inputs of the size that it gets."""
    assert operation.module is not None  # every kind that is read here is a class of modules
    (value,) = operation.inputs
    layer = plain_form(operation.module)
    return Meaning(
        "operator norm, measured",
        lambda: (_norm(operation, layer, value.shape),),
        Affine(lambda radii: _absolute(operation, layer).to(radii)(radii)),
    )


def _norm(operation: Operation, layer: nn.Module, shape: tuple[int, ...]) -> float:
    try:
        # A linear map acts on the last axis alone, however many there are before it.
        upper = operator_norm(layer, shape[-1:] if isinstance(layer, nn.Linear) else shape).upper
    except UnsupportedModuleError as error:
        raise operation.refuse(str(error).rstrip(".")) from error
    # Their kernels are built when they run, in the model's precision, and are measured in float64.
    return upper * (_BUILT if isinstance(layer, _ORTHOGONAL) else 1.0)


def _absolute(operation: Operation, layer: nn.Module) -> nn.Module:
    if isinstance(layer, OrthogonalConv1d):
        layer = layer.to_conv1d()
    elif isinstance(layer, OrthogonalConv2d):
        layer = layer.to_conv2d()
    elif isinstance(layer, OrthogonalConvTranspose1d | OrthogonalConvTranspose2d):
        raise operation.refuse("intervals do not go through it; use the method Lipschitz")
    twin = copy.deepcopy(layer).requires_grad_(requires_grad=False)
    for name, weight in twin.named_parameters():
        weight.copy_(torch.zeros_like(weight) if name.endswith("bias") else weight.abs())
    return twin


def read_linear(operation: Operation) -> Meaning:
    """A product with a matrix that does not depend on the input."""
    weight = argument(operation, 1, "weight")
    return _matrix(operation, weight)


def read_matmul(operation: Operation) -> Meaning:
    """A product with a matrix from the right."""
    first, second = argument(operation, 0, "input"), argument(operation, 1, "other")
    if not isinstance(first, Value) or getattr(second, "ndim", 0) != 2:
        raise operation.refuse("only a product with a fixed matrix on the right is known")
    return _matrix(operation, second.T)


def _matrix(operation: Operation, weight: Tensor) -> Meaning:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False).to(weight)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return Meaning(
        "operator norm, measured",
        lambda: (_norm(operation, layer, operation.inputs[0].shape),),
        Affine(lambda radii: functional.linear(radii, weight.abs().to(radii))),
    )


def read_convolution(operation: Operation) -> Meaning:
    """A convolution written as a function, with a fixed kernel."""
    weight = argument(operation, 1, "weight")
    places = {"stride": (3, 1), "padding": (4, 0), "dilation": (5, 1), "groups": (6, 1)}
    settings = {name: argument(operation, at, name, usual) for name, (at, usual) in places.items()}
    layer = (nn.Conv1d if weight.ndim == 3 else nn.Conv2d)(
        weight.shape[1] * settings["groups"],
        weight.shape[0],
        tuple(weight.shape[2:]),
        bias=False,
        **settings,
    ).to(weight)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return Meaning(
        "operator norm, measured",
        lambda: (_norm(operation, layer, operation.inputs[0].shape),),
        Affine(lambda radii: _absolute(operation, layer).to(radii)(radii)),
    )


def read_batch_norm(operation: Operation) -> Meaning:
    """In inference mode a scale for each channel."""
    # One that divides by the deviation of the batch itself mixes samples, and was never read.
    variance, weight = argument(operation, 2, "running_var"), argument(operation, 3, "weight")
    scale = (variance.double() + argument(operation, 7, "eps", 1e-5)).rsqrt()
    scale = (scale if weight is None else scale * weight.double()).abs()
    axes = len(operation.output.shape) - 1
    return Meaning(
        "largest scale of a channel",
        fixed(float(scale.max()) * _ROUNDING),
        Affine(lambda radii: radii * scale.to(radii).view(-1, *[1] * axes)),
    )


def read_sum(operation: Operation) -> Meaning:
    """Sums and differences of values and fixed tensors."""
    alpha = abs(float(operation.options.get("alpha", 1)))  # only ever given by name
    terms = (argument(operation, 0, "input"), 1.0), (argument(operation, 1, "other"), alpha)
    weights = [weight for given, weight in terms if isinstance(given, Value)]
    growth = (w * _repeats(operation, v) for w, v in zip(weights, operation.inputs, strict=True))
    size = operation.output.shape
    return Meaning(
        "sum",
        fixed(*growth),
        Affine(
            lambda *radii: sum(
                (w * r for w, r in zip(weights, radii, strict=True)),
                radii[0].new_zeros(len(radii[0]), *size),
            )
        ),
    )


def read_scaling(operation: Operation) -> Meaning:
    """Products and quotients with fixed numbers."""
    first, second = argument(operation, 0, "input"), argument(operation, 1, "other")
    is_quotient = operation.kind == "div"
    if len(operation.inputs) != 1 or (is_quotient and isinstance(second, Value)):
        raise operation.refuse("both sides depend on the input, so that nothing bounds it")
    if is_quotient and argument(operation, 2, "rounding_mode") is not None:
        raise operation.refuse("rounding jumps")
    factor = torch.as_tensor(second if isinstance(first, Value) else first).double()
    factor = (1 / factor if is_quotient else factor).abs()
    largest = float(factor.max()) * _repeats(operation, operation.inputs[0]) * _ROUNDING
    return Meaning("largest factor", fixed(largest), Affine(lambda radii: radii * factor.to(radii)))


def _repeats(operation: Operation, value: Value) -> float:
    """By how much a value grows because its entries are used several times."""
    return math.sqrt(math.prod(operation.output.shape) / math.prod(value.shape))


def read_negation(operation: Operation) -> Meaning:
    """A change of sign, or a fixed tensor minus a value."""
    (value,) = operation.inputs
    size = operation.output.shape
    return Meaning(
        "sign",
        fixed(_repeats(operation, value)),
        Affine(lambda radii: radii.expand(len(radii), *size)),
    )


def read_concatenation(operation: Operation) -> Meaning:
    """Values side by side."""
    count = len(operation.inputs)
    return Meaning("side by side", fixed(*[1.0] * count), Affine(operation.run), is_joint=True)


def read_constant(operation: Operation) -> Meaning:
    """A tensor made in the shape of a value, whatever its numbers are."""
    del operation
    return Meaning("fixed", fixed(0.0), Affine(torch.zeros_like))


def read_average(operation: Operation) -> Meaning:
    r"""Sums of entries with weights that are not negative, and entries moved around.

    The norm of such a matrix is at most :math:`\sqrt{\text{largest sum of a row} \cdot
    \text{largest sum of a column}}`, which is exact for averages over blocks and for copies.
    """
    if len(operation.inputs) != 1:
        raise operation.refuse("it takes more than one value that depends on the input")
    return Meaning(
        "sums of rows and columns",
        lambda: (_row_and_column_sums(operation),),
        Affine(lambda radii: operation.run(radii) - operation.run(torch.zeros_like(radii))),
        is_selection=operation.kind in _SELECTIONS,
    )


def _row_and_column_sums(operation: Operation) -> float:
    zeros = torch.zeros(1, *operation.inputs[0].shape, dtype=torch.float64)
    outputs, pull_back = torch.func.vjp(operation.run, zeros)[:2]
    rows = operation.run(torch.ones_like(zeros)) - outputs
    (columns,) = pull_back(torch.ones_like(outputs))
    return math.sqrt(float(rows.max()) * float(columns.max())) * _ROUNDING


AFFINE: dict[str, Callable[[Operation], Meaning]] = {
    **{module.__name__: read_module for module in LINEAR_MODULES},
    **dict.fromkeys((*_SELECTIONS, *_MOVES, *_MEANS), read_average),
    **dict.fromkeys(("zeros_like", "ones_like"), read_constant),
    **dict.fromkeys(("add", "sub"), read_sum),
    **dict.fromkeys(("mul", "div"), read_scaling),
    **dict.fromkeys(("neg", "rsub"), read_negation),
    **dict.fromkeys(("cat", "stack"), read_concatenation),
    **dict.fromkeys(("conv1d", "conv2d"), read_convolution),
    "linear": read_linear,
    "matmul": read_matmul,
    "batch_norm": read_batch_norm,
}
