"""Factorized modules with cores of zeros, into which those of a file are loaded."""

from collections.abc import Mapping

from torch import Tensor, nn

from rankscope.compression.plan import Row
from rankscope.layers.attention import FactorizedMultiheadAttention
from rankscope.layers.convolution import (
    ConvolutionSettings,
    FactorizedConv,
    FactorizedConv1d,
    FactorizedConv2d,
)
from rankscope.layers.cores import CoreStore
from rankscope.layers.embedding import FactorizedEmbedding
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.layers.formats.format import Format, Ranks, WeightShape
from rankscope.layers.linear import FactorizedLinear
from rankscope.layers.projected_attention import split_projections
from rankscope.layers.quantization import BITS
from rankscope.layers.recurrent import FactorizedGRU, FactorizedLSTM, split_weights


def blank(module: nn.Module, rows: Mapping[str, Row]) -> nn.Module:
    """The factorized form of a dense module; biases are copied, cores are zeros.

    Args:
        module: of a class that can be compressed; left as it is.
        rows: what a plan says of its weights, by part; parts without one stay dense.

    Raises:
        LayerError: if ranks are none that the weight can have.
    """
    match module:
        case nn.MultiheadAttention():
            linears = split_projections(module)
            parts = {name: _linear(linears[name], row) for name, row in rows.items()}
            return FactorizedMultiheadAttention.of(module, parts)
        case nn.LSTM() | nn.GRU():
            linears = split_weights(module)
            parts = {name: _linear(linears[name], row) for name, row in rows.items()}
            recurrent = FactorizedLSTM if isinstance(module, nn.LSTM) else FactorizedGRU
            return recurrent.of(module, parts)
    return _single(module, rows["weight"])


def _single(module: nn.Module, row: Row) -> nn.Module:
    layer: FactorizedConv | FactorizedEmbedding
    format, ranks = _choice(row)
    match module:
        case nn.Conv1d() | nn.Conv2d():
            convolution = FactorizedConv1d if isinstance(module, nn.Conv1d) else FactorizedConv2d
            shape = WeightShape.of(module.weight.chunk(module.groups)[0])
            cores = _zeros(module.weight, shape, format, ranks, groups=module.groups)
            settings = ConvolutionSettings.of(module)
            layer = convolution(format, ranks, shape, settings, cores, module.bias)
        case nn.Embedding():
            shape = WeightShape.of(module.weight)
            cores = _zeros(module.weight, shape, format, ranks)
            layer = FactorizedEmbedding(cores, shape, format, ranks, padding_idx=module.padding_idx)
        case _:
            assert isinstance(module, nn.Linear)  # the last of the classes that are sites
            return _linear(module, row)
    _quantize(layer.cores, row)
    return layer


def _linear(linear: nn.Linear, row: Row) -> FactorizedLinear:
    format, ranks = _choice(row)
    shape = WeightShape.of(linear.weight)
    cores = _zeros(linear.weight, shape, format, ranks)
    layer = FactorizedLinear.from_cores(cores, shape, format, ranks, bias=linear.bias)
    _quantize(layer.cores, row)
    return layer


def _choice(row: Row) -> tuple[Format, Ranks]:
    return FORMATS[row.format or ""], row.ranks


def _zeros(
    weight: Tensor, shape: WeightShape, format: Format, ranks: Ranks, *, groups: int = 1
) -> dict[str, Tensor]:
    # Checked first: ranks from a tampered file could ask for any amount of memory.
    format.check(shape, ranks)
    return {
        name: weight.new_zeros(groups * first, *rest)
        for name, (first, *rest) in format.core_shapes(shape, ranks).items()
    }


def _quantize(cores: CoreStore, row: Row) -> None:
    if row.bits in BITS:
        cores.quantize(row.bits)
