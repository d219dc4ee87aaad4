"""What factorized linear layers and convolutions share: their cores, and ways to use them."""

import math
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.layers.cores import CoreStore
from rankscope.layers.cp_components import CPComponents, cp_components
from rankscope.layers.formats.format import Format, Ranks, WeightShape, Window
from rankscope.layers.formats.plain import DENSE
from rankscope.layers.paths import MergedWeight, Path, choose_path, wants_gradients

# What a traced graph is made for: sizes may be unknown then, and one path must serve them all.
TRACED_PLACES = 16
TRACED_BATCH = 16
_Layer = TypeVar("_Layer", bound="FactorizedLayer")


class FactorizedLayer(nn.Module):
    """A layer whose weight is what a format makes of its cores.

    Args:
        format: how the weight is written.
        ranks: of the format, the same for all groups.
        shape: of the weight of one group.
        window: how its kernel moves; that of a matrix is empty.
        cores: of all groups, one after the other along the first position of each.
        bias: one number for each output channel, or None.
        path: how outputs are computed; None lets the cost model choose for each batch.
    """

    def __init__(
        self,
        format: Format,
        ranks: Ranks,
        shape: WeightShape,
        window: Window,
        cores: Mapping[str, Tensor],
        bias: Tensor | None,
        path: Path | None = None,
    ) -> None:
        super().__init__()
        self.format, self.ranks, self.shape, self.path = format, ranks, shape, path
        self.cores = CoreStore(cores)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self._window = window
        places = (TRACED_PLACES,) * len(shape.kernel)
        self._traced_path = choose_path(
            format, shape, ranks, window, places, TRACED_BATCH, training=True
        )
        self._merged = MergedWeight()

    def outputs(self, inputs: Tensor) -> Tensor:
        """By the path asked for, or the one that is estimated to be fastest."""
        path = self._path_for(inputs)
        if path is Path.CHAIN:
            cores = self.cores.tensors()
            return self.format.apply(inputs, cores, self.shape, self._window, self.bias)
        held = (*self.cores.parameters(), *self.cores.buffers())
        rebuilds = path is Path.REBUILT
        weight = self.rebuilt() if rebuilds else self._merged.of(held, self.rebuilt)
        return DENSE.apply(inputs, {"weight": weight}, self.shape, self._window, self.bias)

    def rebuilt(self) -> Tensor:
        """The weight as PyTorch stores it, all groups, by one einsum over the cores of each."""
        cores, groups = self.cores.tensors(), self._window.groups
        if groups == 1:
            return self.format.to_dense(cores, self.shape)
        parts = {name: core.chunk(groups) for name, core in cores.items()}
        weights = [
            self.format.to_dense({name: part[group] for name, part in parts.items()}, self.shape)
            for group in range(groups)
        ]
        return torch.cat(weights)

    def quantize(self, bits: int) -> None:
        """Keep the cores in 8 or 4 bits from now on; they no longer train.

        Raises:
            LayerError: if `bits` is neither, or they are quantized already.
        """
        self.cores.quantize(bits)

    def normalized(self) -> CPComponents:
        """Of cp, or svd of a matrix: its components as weights and unit vectors, largest first.

        Raises:
            LayerError: if the format is another one, or there are groups.
        """
        name, cores = self.format.name, self.cores.tensors()
        return cp_components(name, cores, self.shape, self._window.groups)[0]

    def weight_diagram(self) -> Diagram:
        """The weight of one group as a network of its cores."""
        return self.format.diagram(self.shape, self.ranks)

    def train(self: _Layer, mode: bool = True) -> _Layer:
        """See `nn.Module.train`; a merged weight is forgotten."""
        self._merged.clear()
        super().train(mode)
        return self

    def _path_for(self, inputs: Tensor) -> Path:
        """The path asked for or estimated; merged weights are rebuilt where they cannot be kept."""
        tracing = torch.compiler.is_compiling()
        keeps = not (tracing or self.training or wants_gradients(self.cores.parameters()))
        if self.path is not None:
            return Path.REBUILT if self.path is Path.MERGED and not keeps else self.path
        if tracing:
            return self._traced_path
        places = tuple(inputs.shape[2:]) if self.shape.kernel else ()
        channels = self._window.groups * self.shape.in_size
        rows = inputs.numel() // max(channels * math.prod(places), 1)
        # Batches of about the same size share an estimate.
        batch = 1 << (max(rows, 1) - 1).bit_length()
        return choose_path(
            self.format, self.shape, self.ranks, self._window, places, batch, training=not keeps
        )
