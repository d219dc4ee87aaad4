"""Normalizations with fixed statistics, multiplied into the weights before them.

    small = fold_normalizations(compressed.model, example).model

In inference a batch normalization is one factor and one shift for each channel. A convolution or
linear layer whose outputs go nowhere else takes them over: a factorized one in the core that makes
its output channels. The folded model computes the same with fewer passes over memory; it is for
inference, its normalizations are gone.
"""

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from rankscope.errors import CompressionError, SizeError, UnsupportedModuleError
from rankscope.factorize.convolution import FactorizedConv
from rankscope.factorize.linear import FactorizedLinear
from rankscope.reading.exporting import Example
from rankscope.reading.trace import Operation, Trace, trace

_NORMALIZATIONS = (nn.BatchNorm1d, nn.BatchNorm2d)
_FACTORIZED = (FactorizedConv, FactorizedLinear)
_DENSE = (nn.Conv1d, nn.Conv2d, nn.Linear)


@dataclass(frozen=True, eq=False)
class Folded:
    """A model without the normalizations that could be folded.

    Args:
        model: a copy, in inference mode.
        folded: by the name of each normalization, that of the layer that took it over.
        left: by the name of each other one, why it stays.
    """

    model: nn.Module
    folded: dict[str, str]
    left: dict[str, str]


def fold_normalizations(model: nn.Module, example: Example) -> Folded:
    """Multiply batch normalizations into the layers before them, in a copy.

    Args:
        model: in any mode; it is not changed.
        example: inputs as the model takes them, or their shape, see `rankscope.trace`.

    Example:
        >>> layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        >>> fold_normalizations(layers, (2, 3, 5, 5)).folded
        {'1': '0'}

    Raises:
        CompressionError: if the model cannot be traced on the example, with torch's reason.
    """
    copied = copy.deepcopy(model).eval()
    try:
        read = trace(copied, example, free_batch=False)
    except (UnsupportedModuleError, SizeError) as error:
        raise CompressionError(
            f"{type(model).__name__} cannot be traced, so that it is not known what comes before "
            f"its normalizations: {error}"
        ) from error
    folded: dict[str, str] = {}
    left: dict[str, str] = {}
    for name, layer, axes in list(_pairs(copied, read)):
        reason = _refusal(copied, name, layer, axes)
        if reason is not None:
            left[name] = reason
            continue
        assert layer is not None, "without a layer before it, it was refused"
        _fold(copied, layer, name)
        folded[name] = layer
    for name, module in copied.named_modules():
        if isinstance(module, _NORMALIZATIONS) and name not in left:
            left[name] = "it is not run"
    return Folded(copied, folded, left)


def _pairs(model: nn.Module, read: Trace) -> Iterator[tuple[str, str | None, int]]:
    """Each normalization that is run, the layer that alone feeds it, if one does, and its axes."""
    makers = {value: operation for operation in read.operations for value in operation.outputs}
    uses, runs = read.num_uses(), _runs(model, read)
    for operation in read.operations:
        name = operation.path
        if not isinstance(model.get_submodule(name), _NORMALIZATIONS):
            continue
        source = operation["input"]
        layer = _layer(model, makers[source]) if source in makers else None
        # A module may stand in a model under several names, and one that runs twice stays.
        parts = [model.get_submodule(path) for path in (name, layer) if path is not None]
        if uses[source] > 1 or any(runs[part] > 1 for part in parts):
            layer = None
        yield name, layer, len(source.shape)


def _runs(model: nn.Module, read: Trace) -> Counter[nn.Module]:
    """Count how often each module runs."""
    calls = {call for operation in read.operations for call in operation.calls}
    return Counter(model.get_submodule(call.partition("@")[0]) for call in calls)


def _layer(model: nn.Module, operation: Operation) -> str | None:
    """The path of the layer that an operation belongs to; None if that is no layer by itself."""
    paths = [call.partition("@")[0] for call in operation.calls]
    for path in paths:
        if isinstance(model.get_submodule(path), _FACTORIZED):
            return path
    is_single = bool(paths[-1]) and not any(model.get_submodule(paths[-1]).children())
    return paths[-1] if is_single else None


def _refusal(model: nn.Module, name: str, layer: str | None, axes: int) -> str | None:
    if getattr(model.get_submodule(name), "running_var", None) is None:
        return "it has no fixed statistics"
    if layer is None:
        return "no layer alone feeds it"
    before = model.get_submodule(layer)
    if isinstance(before, (nn.Linear, FactorizedLinear)) and axes != 2:
        return f"its channels are not the outputs of {layer}"
    return None if isinstance(before, _DENSE) else _factorized_refusal(before, layer)


def _factorized_refusal(before: nn.Module, layer: str) -> str | None:
    if not isinstance(before, _FACTORIZED):
        return f"{layer} before it is a {type(before).__name__}"
    if before.cores.bits is not None:
        return f"the cores of {layer} are stored in {before.cores.bits} bits"
    if before.format.output_core is None:
        return f"{before.format.name} has no core that alone makes the channels of {layer}"
    return None


def _fold(model: nn.Module, layer: str, name: str) -> None:
    before, normalization = model.get_submodule(layer), model.get_submodule(name)
    assert isinstance(normalization, _NORMALIZATIONS)
    if isinstance(before, nn.Linear):
        assert isinstance(normalization, nn.BatchNorm1d)
        model.set_submodule(layer, fuse_linear_bn_eval(before, normalization))
    elif isinstance(before, _FACTORIZED):
        _scale_outputs(before, *_affine(normalization))
    else:
        assert isinstance(before, nn.Conv1d | nn.Conv2d)
        model.set_submodule(layer, fuse_conv_bn_eval(before, normalization))
    model.set_submodule(name, nn.Identity())


def _affine(normalization: nn.BatchNorm1d | nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """The factor and the shift of each channel, in float64."""
    mean, variance = normalization.running_mean, normalization.running_var
    assert mean is not None
    assert variance is not None
    scale = torch.rsqrt(variance.double() + normalization.eps)
    if normalization.weight is not None:
        scale = scale * normalization.weight.detach().double()
    shift = -mean.double() * scale
    if normalization.bias is not None:
        shift = shift + normalization.bias.detach().double()
    return scale, shift


def _scale_outputs(layer: FactorizedConv | FactorizedLinear, scale: Tensor, shift: Tensor) -> None:
    name = layer.format.output_core
    assert name is not None
    core = layer.cores.get_parameter(name)
    factors = scale.reshape(-1, *(1,) * (core.ndim - 1))
    core.data = (core.data.double() * factors).to(core.dtype)
    if layer.bias is not None:
        shift = shift + layer.bias.detach().double() * scale
    layer.bias = nn.Parameter(shift.to(core.dtype))
