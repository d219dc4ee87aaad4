"""Linear maps with weights: what they do to distances, to intervals and to rounding."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import UnsupportedModuleError
from rankscope.factorize.convolution import FactorizedConv1d, FactorizedConv2d
from rankscope.factorize.linear import FactorizedLinear
from rankscope.reading.trace import Value
from rankscope.robust.forms import (
    PRODUCT,
    Affine,
    TransferFunction,
    fixed_argument,
    known_growth,
    no_growth,
    own_arithmetic,
)
from rankscope.robust.graph import Node, sample_shape
from rankscope.robust.operator_norms import ORTHOGONAL, as_convolution, operator_norm, plain_form
from rankscope.robust.orthogonal import (
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
    with_kernel,
)
from rankscope.robust.relaxations import product
from rankscope.robust.rounding import (
    FLOAT64,
    LIBRARY,
    ProductSquares,
    Rounding,
    above,
    short_weights,
)

FACTORIZED = (FactorizedLinear, FactorizedConv1d, FactorizedConv2d)
_TRANSPOSED = (
    *(nn.ConvTranspose1d, nn.ConvTranspose2d),
    *(OrthogonalConvTranspose1d, OrthogonalConvTranspose2d),
)


def read_layer(node: Node) -> TransferFunction:
    """A layer taken whole: its norm on inputs of the size that it gets."""
    assert node.module is not None  # every kind that is read here is a class of modules
    return _measured_growth(node, plain_form(node.module))


def _measured_growth(node: Node, layer: nn.Module) -> TransferFunction:
    absolute = _absolute(layer)
    return TransferFunction(
        "operator norm, measured",
        lambda: (_norm(node, layer),),
        Affine(absolute),
        rounding=_layer_rounding(node, layer, absolute),
    )


def _layer_rounding(node: Node, layer: nn.Module, absolute: nn.Module) -> Rounding:
    """Of a sum of products for every output, and of the cores that a weight is made of."""
    module = node.module
    bias = node.arguments.get("bias") if module is None else getattr(module, "bias", None)
    offset: Tensor | float = 0.0
    if isinstance(bias, Tensor):
        axes = 0 if isinstance(layer, nn.Linear) else len(sample_shape(node.output)) - 1
        offset = bias.detach().abs().double().view(-1, *[1] * axes)
    if isinstance(module, FACTORIZED):
        count = sum(core.numel() for core in module.parameters()) + 4
        return Rounding(count, _absolute(module), offset)
    return Rounding(
        _terms(layer) + 2,
        absolute,
        offset,
        is_sum=True,
        products=_product_squares(node, layer, offset),
        terms=_terms_of(node, layer, bias),
        short=_absolute(layer, short_weights) if _is_short(node) else None,
    )


def _product_squares(node: Node, layer: nn.Module, offset: Tensor | float) -> ProductSquares | None:
    """Every entry of an input meets every weight of its channel once, or as often as it recurs."""
    before, after = sample_shape(node.inputs[0]), sample_shape(node.output)
    is_linear = isinstance(layer, nn.Linear)
    # Where edges are repeated or reflected, some entries recur and others do not.
    if len(before) > 1 if is_linear else layer.padding_mode not in ("zeros", "circular"):
        return None
    squares = _weight(layer).detach().double().square()
    again = 1
    if isinstance(layer, _TRANSPOSED):
        columns = squares.flatten(1).sum(dim=1)
    elif is_linear:
        columns = squares.sum(dim=0)
    else:
        known = as_convolution(layer)
        by_group = squares.view(known.groups, -1, *squares.shape[1:])
        columns = by_group.sum(dim=1).flatten(2).sum(dim=2).flatten()
        if known.is_circular:
            sizes = zip(before[1:], after[1:], known.stride, strict=True)
            again = math.prod(math.ceil(m * math.gcd(s, n) / n) for n, m, s in sizes)
    constants = offset.square().sum() * math.prod(after[1:]) if isinstance(offset, Tensor) else 0.0
    up = again * above(1.0, squares.numel() + 8)
    columns = columns.view(-1, *[1] * (len(before) - 1))
    # Squares of tiny weights are flushed to zero.
    flushed = FLOAT64.absolute(squares.numel())
    return ProductSquares(columns * up + flushed, float(constants) * up)


def _terms_of(
    node: Node, layer: nn.Module, bias: Tensor | None
) -> Callable[[Tensor], Tensor] | None:
    """What is added for every output of one sample; None for what is not known here."""
    is_linear = isinstance(layer, nn.Linear)
    if isinstance(layer, _TRANSPOSED) or (is_linear and len(sample_shape(node.inputs[0])) > 1):
        return None

    def terms(inputs: Tensor) -> Tensor:
        weight = _weight(layer).detach().double()
        count, groups = weight[0].numel(), 1 if is_linear else as_convolution(layer).groups
        # What every weight is multiplied with, place by place.
        entries = inputs if is_linear else _patches(layer, weight)(inputs)
        entries = entries.reshape(groups, 1, count, -1).mT
        products = (weight.reshape(groups, -1, 1, count) * entries).reshape(-1, count)
        if not isinstance(bias, Tensor):
            return products
        constants = bias.detach().double().repeat_interleave(len(products) // len(bias))
        return torch.cat([products, constants[:, None]], dim=1)

    return terms


def _patches(layer: nn.Module, weight: Tensor) -> nn.Module:
    """The convolution that takes every entry of a patch by itself, group by group."""
    count = weight[0].numel()
    ones = torch.eye(count, dtype=torch.float64).view(count, *weight.shape[1:])
    ones = ones.repeat(as_convolution(layer).groups, *[1] * (weight.ndim - 1))
    if isinstance(layer, ORTHOGONAL):
        clone = with_kernel(layer, lambda _: ones)
    else:
        clone = copy.deepcopy(layer).eval()
        clone.weight = nn.Parameter(ones, requires_grad=False)
    setattr(clone, "bias", None)  # noqa: B010 - a parameter, or None already
    return clone


def _is_short(node: Node) -> bool:
    """Whether what float32 cannot hold overflows in the model, too."""
    return own_arithmetic(node).largest <= torch.finfo(torch.float32).max


def _terms(layer: nn.Module) -> int:
    """The most products that one output is a sum of."""
    weight = _weight(layer)
    if isinstance(layer, _TRANSPOSED):
        return weight[:, 0].numel() // int(layer.groups)
    return weight[0].numel()


def _weight(layer: nn.Module) -> Tensor:
    weight = layer.weight() if isinstance(layer, ORTHOGONAL) else layer.weight
    assert isinstance(weight, Tensor)
    return weight


def _norm(node: Node, layer: nn.Module) -> float:
    shape = sample_shape(node.inputs[0])
    # What is made of cores is measured with what making it may lose.
    module = node.module if isinstance(node.module, FACTORIZED) else layer
    try:
        # A linear map acts on the last axis alone, however many there are before it.
        upper = operator_norm(module, shape[-1:] if isinstance(layer, nn.Linear) else shape).upper
    except UnsupportedModuleError as error:
        raise node.refusal(str(error).rstrip(".")) from error
    return upper


def _absolute(layer: nn.Module, kept: Callable[[Tensor], Tensor] = Tensor.double) -> nn.Module:
    """The layer with the absolute values of its weights, kept in some floats, and no bias."""
    built = isinstance(layer, ORTHOGONAL)
    clone = with_kernel(layer, lambda kernel: kept(kernel.abs().double())) if built else layer
    clone = copy.deepcopy(clone).requires_grad_(requires_grad=False)
    for name, weight in clone.named_parameters():
        size = kept(weight.abs().double())
        weight.data = torch.zeros_like(size) if name.endswith("bias") else size
    return clone.eval()


def read_linear(node: Node) -> TransferFunction:
    """A product with a matrix that does not depend on the input."""
    return _matrix(node, fixed_argument(node, "weight"))


def read_matmul(node: Node) -> TransferFunction:
    """A product with a fixed matrix on either side, or of two values."""
    first, second = node["self"], node["mat2" if node.kind in ("mm", "bmm") else "other"]
    if isinstance(first, Value) and isinstance(second, Value):
        return _matrix_product(node, first.shape[-1])
    if isinstance(first, Value) and second.ndim == 2:
        return _matrix(node, second.T)
    fixed = second if isinstance(first, Value) else first
    size: Tensor = fixed.abs().double()

    def spread(radii: Tensor) -> Tensor:
        return radii @ size if isinstance(first, Value) else size @ radii

    return TransferFunction(
        "product with fixed matrices",
        no_growth(node, "only a product with one fixed matrix on the right has a constant"),
        Affine(spread),
        rounding=Rounding(fixed.shape[-1] + fixed.shape[-2], spread, is_sum=True),
    )


def _matrix_product(node: Node, length: int, *, is_sum: bool = True) -> TransferFunction:
    """Rows of one value times columns of another."""
    return TransferFunction(
        "product of two values",
        no_growth(node, PRODUCT),
        product(node.run, node.run),
        rounding=Rounding(length + 6, node.run, is_sum=is_sum),
    )


def read_scores(node: Node) -> TransferFunction:
    """Queries times keys, scaled."""
    if float(node["scale"]) < 0:
        raise node.refusal(f"attention has a negative scale, {node['scale']}")
    return _matrix_product(node, node.inputs[0].shape[-1])


def read_sums(node: Node) -> TransferFunction:
    """Values added up by the weights of attention, rescaled for every key in a fused kernel."""
    length = node.inputs[0].shape[-1]
    return _matrix_product(node, length * (LIBRARY + 2), is_sum=False)


def _matrix(node: Node, weight: Tensor) -> TransferFunction:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False).to(weight)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    size = weight.abs().double()
    short_size = short_weights(size)

    def spread(radii: Tensor) -> Tensor:
        return functional.linear(radii, size.to(radii))

    def short(sizes: Tensor) -> Tensor:
        return functional.linear(sizes, short_size)

    bias = node.arguments.get("bias")
    offset = bias.abs().double() if isinstance(bias, Tensor) else 0.0
    return TransferFunction(
        "operator norm, measured",
        lambda: (_norm(node, layer),),
        Affine(spread),
        rounding=Rounding(
            weight.shape[1] + 2,
            spread,
            offset,
            is_sum=True,
            products=_product_squares(node, layer, offset),
            terms=_terms_of(node, layer, bias),
            short=short if _is_short(node) else None,
        ),
    )


CONVOLUTIONS = {
    "conv1d": nn.Conv1d,
    "conv2d": nn.Conv2d,
    "conv_transpose1d": nn.ConvTranspose1d,
    "conv_transpose2d": nn.ConvTranspose2d,
}


def read_convolution(node: Node) -> TransferFunction:
    """A convolution with a fixed kernel, or the adjoint of one."""
    weight = fixed_argument(node, "weight")
    _require_axes(node, weight.ndim - 1)
    names = {"stride", "padding", "dilation", "groups", "output_padding"} & set(node.arguments)
    settings = {name: _setting(node[name]) for name in names}
    across, along = weight.shape[0], weight.shape[1] * settings["groups"]
    channels = (across, along) if node.kind.startswith("conv_transpose") else (along, across)
    kernel = tuple(weight.shape[2:])
    layer = CONVOLUTIONS[node.kind](*channels, kernel, bias=False, **settings).to(weight)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return _measured_growth(node, layer)


def _require_axes(node: Node, count: int) -> None:
    shape = sample_shape(node.inputs[0])
    if len(shape) != count:
        raise node.refusal(f"wanted {count} axes for each sample, got the shape {shape}")


def _setting(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def read_batch_norm(node: Node) -> TransferFunction:
    """Read a batch normalization in inference mode: a scale for each channel."""
    scale = normalization_scale(node).abs()
    shape = (-1, *[1] * (len(sample_shape(node.output)) - 1))
    bias = node["bias"]
    constants = (node["running_mean"].double() * scale).abs()
    constants = constants if bias is None else constants + bias.double().abs()

    def spread(radii: Tensor) -> Tensor:
        return radii * scale.to(radii).view(shape)

    return TransferFunction(
        "largest scale of a channel",
        known_growth(above(float(scale.max()), 8)),
        Affine(spread),
        # The root and the quotient, the scale, the shift, and the two that every entry meets.
        rounding=Rounding(12, spread, constants.view(shape)),
    )


def normalization_scale(node: Node) -> Tensor:
    """Scale of each channel by a batch normalization in inference mode, in float64."""
    scale: Tensor = (node["running_var"].double() + node["eps"]).rsqrt()
    weight = node["weight"]
    return scale if weight is None else scale * weight.double()
