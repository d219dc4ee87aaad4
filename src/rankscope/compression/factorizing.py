"""From one dense module and what a plan says of its weights to the factorized one."""

import copy
from collections.abc import Mapping
from typing import cast

import torch
from torch import nn

from rankscope.compression.parts import parts_of
from rankscope.compression.plan import Row
from rankscope.compression.scores import Weighing
from rankscope.compression.whitening import can_whiten, take_back, whiten
from rankscope.layers.attention import FactorizedMultiheadAttention
from rankscope.layers.convolution import FactorizedConv, FactorizedConv1d, FactorizedConv2d
from rankscope.layers.cores import CoreStore
from rankscope.layers.embedding import FactorizedEmbedding
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.layers.formats.format import Format, Ranks
from rankscope.layers.linear import FactorizedLinear
from rankscope.layers.recurrent import FactorizedGRU, FactorizedLSTM, FactorizedRecurrent

Choices = Mapping[str, tuple[Format, Ranks]]
Factorized = (
    FactorizedLinear
    | FactorizedEmbedding
    | FactorizedConv
    | FactorizedMultiheadAttention
    | FactorizedRecurrent
)


def factorize(
    module: nn.Module, rows: Mapping[str, Row], weighings: Mapping[str, Weighing | None]
) -> Factorized:
    """Decompose the weights of a supported module, and quantize the cores that are to be.

    Args:
        module: dense, left as it is.
        rows: of a plan, by part of the module; parts without one stay dense.
        weighings: by part; whitened where the format allows it.
    """
    choices = {part: (FORMATS[row.format or ""], tuple(row.ranks)) for part, row in rows.items()}
    dtype = next(module.parameters()).dtype
    # A weight whitened in half precision would lose what whitening brings.
    given = copy.deepcopy(module).to(torch.promote_types(dtype, torch.float32))
    whitened = _whiten_parts(given, choices, weighings)
    layer = _from_dense(given, choices)
    for part, weighing in whitened.items():
        store = store_of(layer, part)
        cores = {name: core.detach() for name, core in store.tensors().items()}
        groups = layer.settings.groups if isinstance(layer, FactorizedConv) else 1
        restored = take_back(cores, choices[part][0], weighing, groups=groups)
        _load(store, restored)
    layer = layer.to(dtype)
    for part, row in rows.items():
        if row.bits < 8 * dtype.itemsize:
            store_of(layer, part).quantize(row.bits)
    return layer


def store_of(layer: Factorized, part: str) -> CoreStore:
    """The cores that stand for one weight of a module."""
    holder: nn.Module = layer
    if isinstance(layer, FactorizedMultiheadAttention):
        holder = layer.projections[part]
    elif isinstance(layer, FactorizedRecurrent):
        holder = layer.weight(part)
    return cast(CoreStore, holder.cores)


def _whiten_parts(
    module: nn.Module, choices: Choices, weighings: Mapping[str, Weighing | None]
) -> dict[str, Weighing]:
    """Whiten weights of a module in place; returns how each of them was."""
    whitened = {}
    for part in parts_of(module):
        weighing = weighings.get(part.name)
        if part.name not in choices or weighing is None:
            continue
        if can_whiten(choices[part.name][0], weighing):
            part.weight.copy_(whiten(part.weight, weighing))
            whitened[part.name] = weighing
    return whitened


def _from_dense(module: nn.Module, choices: Choices) -> Factorized:
    if isinstance(module, nn.MultiheadAttention):
        return FactorizedMultiheadAttention.from_dense(module, choices)
    if isinstance(module, nn.LSTM | nn.GRU):
        recurrent = FactorizedLSTM if isinstance(module, nn.LSTM) else FactorizedGRU
        return recurrent.from_dense(module, choices)
    return _from_single(module, *choices["weight"])


def _from_single(module: nn.Module, format: Format, ranks: Ranks) -> Factorized:
    """For classes with one weight."""
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        convolution = FactorizedConv1d if isinstance(module, nn.Conv1d) else FactorizedConv2d
        return convolution.from_dense(module, format, ranks)
    if isinstance(module, nn.Embedding):
        return FactorizedEmbedding.from_dense(module, format, ranks)
    assert isinstance(module, nn.Linear)  # the last of the classes that are sites
    return FactorizedLinear.from_dense(module, format, ranks)


def _load(store: CoreStore, cores: Mapping[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, core in cores.items():
            store.get_parameter(name).copy_(core)
