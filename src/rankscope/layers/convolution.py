"""Convolutions whose kernel is held as the cores of a format."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.diagrams.diagram import Diagram
from rankscope.errors import LayerError
from rankscope.layers.convolution_settings import ConvolutionSettings, check_convolution
from rankscope.layers.cores import CoreStore, checked_cores
from rankscope.layers.cp_components import CPComponents, cp_components
from rankscope.layers.formats.format import Format, Ranks, WeightShape
from rankscope.layers.paths import MergedWeight, Path, choose_path, wants_gradients

# What a traced graph is made for: sizes may be unknown then, and one path must serve them all.
TRACED_PLACES = 16
TRACED_BATCH = 16


class FactorizedConv(nn.Module):
    """What convolutions of one and two positions share; see `FactorizedConv2d`.

    Args:
        format: how the kernel is written.
        ranks: of the format, the same for all groups.
        shape: of the kernel of one group.
        settings: stride, padding, dilation, groups.
        cores: of all groups, one after the other along the first position of each.
        bias: one number for each output channel, or None.
        path: how outputs are computed; None: whichever is estimated to be fastest.
    """

    dense_class: ClassVar[type[nn.Conv1d] | type[nn.Conv2d]]

    def __init__(
        self,
        format: Format,
        ranks: Ranks,
        shape: WeightShape,
        settings: ConvolutionSettings,
        cores: Mapping[str, Tensor],
        bias: Tensor | None = None,
        path: Path | None = None,
    ) -> None:
        super().__init__()
        self.format, self.ranks, self.shape, self.settings = format, ranks, shape, settings
        self.cores = CoreStore(checked_cores(format, shape, ranks, cores, groups=settings.groups))
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.path = path
        places = (TRACED_PLACES,) * len(shape.kernel)
        self._window, self._pads_first = settings.window, settings.pads_first
        self._traced_path = choose_path(
            format, shape, ranks, self._window, places, TRACED_BATCH, training=True
        )
        self._merged = MergedWeight()

    @classmethod
    def from_dense(
        cls, dense: nn.Module, format: Format, ranks: Ranks, *, seed: int = 0
    ) -> "FactorizedConv":
        """Decompose the kernel of a dense convolution, each group on its own.

        Raises:
            LayerError: if the convolution, its shape or the ranks are refused.
        """
        check_convolution(dense, cls.dense_class)
        assert isinstance(dense, cls.dense_class)  # what was just checked
        settings = ConvolutionSettings.of(dense)
        kernels = dense.weight.detach().chunk(dense.groups)
        shape = WeightShape.of(kernels[0])
        format.check(shape, ranks)
        found = [format.decompose(kernel, ranks, seed=seed) for kernel in kernels]
        cores = {name: torch.cat([cores[name] for cores in found]) for name in found[0]}
        layer = cls(format, ranks, shape, settings, cores, dense.bias)
        return layer.train(dense.training)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (batch, out_channels, *positions) of inputs (batch, in_channels, *positions)."""
        order = len(self.shape.kernel)
        if inputs.ndim == order + 1:
            return self.forward(inputs[None])[0]
        self._check_inputs(inputs)
        inputs = self.settings.pad(inputs) if self._pads_first else inputs
        path = self._path_for(inputs)
        if path is not Path.CHAIN:
            return self._convolve(inputs, self._weight(path))
        cores = self.cores.tensors()
        return self.format.apply(inputs, cores, self.shape, self._window, self.bias)

    def to_dense(self) -> nn.Conv1d | nn.Conv2d:
        """The dense convolution with the rebuilt kernel."""
        groups = self.settings.groups
        dense = self.dense_class(
            groups * self.shape.in_size,
            groups * self.shape.out_size,
            bias=self.bias is not None,
            device="meta",
            **self.settings.arguments(),
        )
        dense.weight = nn.Parameter(self._rebuilt().detach().clone())
        if self.bias is not None:
            dense.bias = nn.Parameter(self.bias.detach().clone())
        return dense.train(self.training)

    def quantize(self, bits: int) -> None:
        """Keep the cores as integers of 8 or 4 bits; they no longer train."""
        self.cores.quantize(bits)

    def normalized(self) -> CPComponents:
        """Of a CP layer: its components as weights and unit vectors, largest first.

        Raises:
            LayerError: if the format is another one, or there are groups.
        """
        name, cores = self.format.name, self.cores.tensors()
        return cp_components(name, cores, self.shape, self.settings.groups)[0]

    def diagram(self) -> Diagram:
        """The kernel of one group as a network of its cores."""
        return self.format.diagram(self.shape, self.ranks)

    def train(self, mode: bool = True) -> "FactorizedConv":
        """See `nn.Module.train`; a merged kernel is forgotten."""
        self._merged.clear()
        super().train(mode)
        return self

    def extra_repr(self) -> str:
        """Channels, kernel and what is not usual of the settings; format and ranks."""
        settings = self.settings
        usual = {"stride": 1, "dilation": 1}
        told = [
            f"{name}={getattr(settings, name)}"
            for name, value in usual.items()
            if any(size != value for size in getattr(settings, name))
        ]
        told += [f"padding={settings.padding}"] if any(map(any, settings.margins)) else []
        told += [f"groups={settings.groups}"] if settings.groups > 1 else []
        told += [] if settings.padding_mode == "zeros" else [f"mode={settings.padding_mode}"]
        channels = (settings.groups * self.shape.in_size, settings.groups * self.shape.out_size)
        kernel = "x".join(map(str, self.shape.kernel))
        parts = [f"{channels[0]} -> {channels[1]}", kernel, *told]
        parts += [f"{self.format.name} at ranks {self.ranks}", f"bias={self.bias is not None}"]
        return ", ".join(parts)

    def _check_inputs(self, inputs: Tensor) -> None:
        order, channels = len(self.shape.kernel), self.settings.groups * self.shape.in_size
        if inputs.ndim != order + 2 or inputs.shape[1] != channels:
            raise LayerError(
                f"{type(self).__name__}: wanted inputs (batch, {channels}, and {order} "
                f"position(s)), got {tuple(inputs.shape)}."
            )

    def _path_for(self, inputs: Tensor) -> Path:
        """The path asked for or estimated; merged weights are rebuilt where they cannot be kept."""
        tracing = torch.compiler.is_compiling()
        keeps = not (tracing or self.training or wants_gradients(self.cores.parameters()))
        if self.path is not None:
            return Path.REBUILT if self.path is Path.MERGED and not keeps else self.path
        if tracing:
            return self._traced_path
        # Batches of about the same size share an estimate.
        batch = 1 << (max(inputs.shape[0], 1) - 1).bit_length()
        places = tuple(inputs.shape[2:])
        return choose_path(
            self.format, self.shape, self.ranks, self._window, places, batch, training=not keeps
        )

    def _weight(self, path: Path) -> Tensor:
        if path is Path.REBUILT:
            return self._rebuilt()
        held = (*self.cores.parameters(), *self.cores.buffers())
        return self._merged.of(held, self._rebuilt)

    def _rebuilt(self) -> Tensor:
        cores, groups = self.cores.tensors(), self.settings.groups
        if groups == 1:
            return self.format.to_dense(cores, self.shape)
        parts = {name: core.chunk(groups) for name, core in cores.items()}
        return torch.cat(
            [
                self.format.to_dense(
                    {name: part[group] for name, part in parts.items()}, self.shape
                )
                for group in range(groups)
            ]
        )

    def _convolve(self, inputs: Tensor, weight: Tensor) -> Tensor:
        window = self._window
        convolution = functional.conv1d if len(self.shape.kernel) == 1 else functional.conv2d
        return convolution(
            inputs,
            weight,
            self.bias,
            window.stride,
            window.padding,
            window.dilation,
            window.groups,
        )


class FactorizedConv1d(FactorizedConv):
    """A convolution along one position; see `FactorizedConv2d`."""

    dense_class = nn.Conv1d


class FactorizedConv2d(FactorizedConv):
    """A convolution whose kernel is held as the cores of a format.

    Outputs are those of the dense convolution with the rebuilt kernel (`to_dense`), on whichever
    `path`: the factor chain (which leaves large outputs in channels-last memory), the kernel
    rebuilt in each pass, or the kernel merged once. A merged kernel keeps parameters and files
    small, not memory; it serves in evaluation without gradients, elsewhere it is rebuilt.

    Example:
        >>> from rankscope.layers.formats.svd_format import SVDFormat
        >>> dense = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        >>> layer = FactorizedConv2d.from_dense(dense, SVDFormat(), (4,))
        >>> layer(torch.zeros(1, 16, 8, 8)).shape, layer.cores.num_parameters
        (torch.Size([1, 32, 4, 4]), 576)
    """

    dense_class = nn.Conv2d
