"""Networks with CP layers in the place of their convolutions and linear maps."""

import copy
from collections.abc import Callable

import torch
from torch import nn

from rankscope.factorize.cp_layers import CPConv2d, CPLinear, as_cp, matched_rank
from rankscope.factorize.formats.format import WeightShape

Replace = Callable[[nn.Module], nn.Module]


def with_cp_layers(
    model: nn.Module,
    *,
    rank: Callable[[WeightShape], int] = matched_rank,
    seed: int = 0,
    keep_ends: bool = True,
) -> nn.Module:
    """A copy of a network to train from scratch, its layers drawn anew in CP form.

    Convolutions in groups stay as they are.

    Args:
        model: any network of `nn.Conv2d` and `nn.Linear` layers; stays untouched.
        rank: of a layer, from the shape of its weight; by default the one at which it has as many
            parameters as the dense layer.
        seed: of the random numbers.
        keep_ends: the first and the last of these layers stay dense, as in CP-VGG-16.

    Example:
        >>> clone = with_cp_layers(nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU()), keep_ends=False)
        >>> type(clone[0]).__name__, clone[0].ranks
        ('FactorizedConv2d', (22,))
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(layer: nn.Module) -> nn.Module:
        if isinstance(layer, nn.Linear):
            return CPLinear(
                layer.in_features,
                layer.out_features,
                rank=rank(WeightShape.of(layer.weight)),
                bias=layer.bias is not None,
                generator=generator,
            )
        assert isinstance(layer, nn.Conv2d)  # the others are never asked for
        return CPConv2d(
            layer.in_channels,
            layer.out_channels,
            (layer.kernel_size[0], layer.kernel_size[1]),
            rank=rank(WeightShape.of(layer.weight)),
            stride=(layer.stride[0], layer.stride[1]),
            padding=_padding(layer),
            dilation=(layer.dilation[0], layer.dilation[1]),
            bias=layer.bias is not None,
            padding_mode=layer.padding_mode,
            generator=generator,
        )

    return _replace_layers(model, drawn, keep_ends=keep_ends)


def in_cp_form(model: nn.Module) -> nn.Module:
    """A copy that computes the same, to rounding, with every dense layer written in CP form.

    Components are orthogonal to each other, and as many as a layer can need
    (`rankscope.factorize.cp_layers.exact_components`). Convolutions in groups stay as they are.

    Example:
        >>> clone = in_cp_form(nn.Sequential(nn.Linear(4, 3)))
        >>> clone[0].normalized().weights.shape
        torch.Size([3])

    Raises:
        LayerError: if a weight is not finite.
    """
    return _replace_layers(model, _in_cp_form, keep_ends=False)


def _in_cp_form(layer: nn.Module) -> nn.Module:
    assert isinstance(layer, nn.Linear | nn.Conv2d)  # the others are never asked for
    return as_cp(layer)


def _replace_layers(model: nn.Module, replace: Replace, *, keep_ends: bool) -> nn.Module:
    clone = copy.deepcopy(model)
    if _is_replaceable(clone):
        return clone if keep_ends else replace(clone)
    replaceable = [name for name, module in clone.named_modules() if _is_replaceable(module)]
    for name in replaceable[1:-1] if keep_ends else replaceable:
        parent, _, own = name.rpartition(".")
        setattr(clone.get_submodule(parent), own, replace(clone.get_submodule(name)))
    return clone


def _is_replaceable(module: nn.Module) -> bool:
    # Only the classes themselves: what others make of their weights is not known.
    return type(module) is nn.Linear or (type(module) is nn.Conv2d and module.groups == 1)


def _padding(layer: nn.Conv2d) -> str | tuple[int, int]:
    padding = layer.padding
    return padding if isinstance(padding, str) else (padding[0], padding[1])
