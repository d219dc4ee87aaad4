"""Convolutions whose kernel is held as the cores of a format."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rankscope.diagrams.network import Network
from rankscope.errors import LayerError
from rankscope.factorize.cores import checked_cores
from rankscope.factorize.formats.format import Format, Ranks, WeightShape, Window
from rankscope.factorize.layer import FactorizedLayer, layer_steps, row_indices
from rankscope.factorize.paths import Path

REFUSED = {
    nn.ConvTranspose1d: "transposed convolutions are not factorized: their kernel runs backwards",
    nn.ConvTranspose2d: "transposed convolutions are not factorized: their kernel runs backwards",
    nn.ConvTranspose3d: "transposed convolutions are not factorized: their kernel runs backwards",
    nn.Conv3d: "kernels of three positions are not factorized, only of one or two",
}


@dataclass(frozen=True)
class ConvolutionSettings:
    """Everything of a convolution but its weight, bias and channels.

    Args:
        kernel: size along each position.
        stride: one for each position.
        padding: one for each position, or "same" or "valid".
        dilation: one for each position.
        groups: channels of a group see only inputs of the same group.
        padding_mode: "zeros", "circular", "reflect" or "replicate".

    Example:
        >>> ConvolutionSettings.of(nn.Conv2d(8, 8, (2, 5), padding="same")).margins
        ((0, 1), (2, 2))
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int
    padding_mode: str

    @classmethod
    def of(cls, dense: nn.Conv1d | nn.Conv2d) -> "ConvolutionSettings":
        """Read the settings of a dense convolution."""
        padding = dense.padding if isinstance(dense.padding, str) else tuple(dense.padding)
        return cls(
            kernel=tuple(dense.kernel_size),
            stride=tuple(dense.stride),
            padding=padding,
            dilation=tuple(dense.dilation),
            groups=dense.groups,
            padding_mode=dense.padding_mode,
        )

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments as PyTorch's own convolutions take them."""
        arguments = asdict(self)
        return {"kernel_size": arguments.pop("kernel"), **arguments}

    @property
    def margins(self) -> tuple[tuple[int, int], ...]:
        """Padding before and after, along each position; what is odd of "same" comes after."""
        if self.padding == "valid":
            return ((0, 0),) * len(self.kernel)
        if self.padding == "same":
            reaches = [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]
            return tuple((reach // 2, reach - reach // 2) for reach in reaches)
        return tuple((int(size), int(size)) for size in self.padding)

    @property
    def window(self) -> Window:
        """How the kernel moves over the inputs."""
        before, after = (tuple(sizes) for sizes in zip(*self.margins, strict=True))
        return Window(
            self.stride,
            before,
            self.dilation,
            self.groups,
            None if after == before else after,
            self.padding_mode if any((*before, *after)) else "zeros",
        )


def check_convolution(dense: nn.Module, wanted: type[nn.Conv1d] | type[nn.Conv2d]) -> None:
    """Refuse what cannot be factorized, by name and with the reason.

    Raises:
        LayerError: if it is another module than wanted, or depthwise.
    """
    name = type(dense).__name__
    reason = REFUSED.get(type(dense), f"wanted a {wanted.__name__}")
    if type(dense) is not wanted:
        raise LayerError(f"{name}: {reason}. Leave it dense.")
    if dense.in_channels == dense.groups:
        raise LayerError(
            f"{name}: depthwise, each of its {dense.groups} groups reads 1 channel; a kernel "
            f"{WeightShape.of(dense.weight).sizes} has no channels to factorize. Leave it dense."
        )


class FactorizedConv(FactorizedLayer):
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
        checked = checked_cores(format, shape, ranks, cores, groups=settings.groups)
        super().__init__(format, ranks, shape, settings.window, checked, bias, path)
        self.settings = settings

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
        decomposed = [format.decompose(kernel, ranks, seed=seed) for kernel in kernels]
        cores = {name: torch.cat([cores[name] for cores in decomposed]) for name in decomposed[0]}
        layer = cls(format, ranks, shape, settings, cores, dense.bias)
        return layer.train(dense.training)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (batch, out_channels, *positions) of inputs (batch, in_channels, *positions)."""
        order = len(self.shape.kernel)
        if inputs.ndim == order + 1:
            return self.forward(inputs[None])[0]
        self._check_inputs(inputs)
        return self.outputs(inputs)

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
        dense.weight = nn.Parameter(self.rebuilt().detach().clone())
        if self.bias is not None:
            dense.bias = nn.Parameter(self.bias.detach().clone())
        return dense.train(self.training)

    def diagram(self, *sizes: int) -> Network:
        """The layer on inputs `x`; arrays are named as parameters are.

        Args:
            sizes: of the inputs without their channels: positions, or the batch and positions.

        Raises:
            LayerError: if there are more or fewer of them.
        """
        order = len(self.shape.kernel)
        if len(sizes) not in (order, order + 1):
            raise LayerError(
                f"{type(self).__name__}.diagram: wanted {order} position(s), or a batch and "
                f"{order} position(s), got {sizes}."
            )
        batch, positions = sizes[:-order], sizes[-order:]
        chain = self.format.chain(self.shape, self.ranks, self._window, positions)
        bias = None if self.bias is None else "bias"
        rows = row_indices(batch)
        return Network(
            "convolution", layer_steps("y", chain, "x", rows=rows, prefix="cores.", bias=bias)
        )

    def extra_repr(self) -> str:
        """Channels, kernel and what is not usual of the settings; format and ranks."""
        settings = self.settings
        usual = {"stride": 1, "dilation": 1}
        listed = [
            f"{name}={getattr(settings, name)}"
            for name, value in usual.items()
            if any(size != value for size in getattr(settings, name))
        ]
        listed += [f"padding={settings.padding}"] if any(map(any, settings.margins)) else []
        listed += [f"groups={settings.groups}"] if settings.groups > 1 else []
        listed += [] if settings.padding_mode == "zeros" else [f"mode={settings.padding_mode}"]
        channels = (settings.groups * self.shape.in_size, settings.groups * self.shape.out_size)
        kernel = "x".join(map(str, self.shape.kernel))
        parts = [f"{channels[0]} -> {channels[1]}", kernel, *listed]
        parts += [f"{self.format.name} at ranks {self.ranks}", f"bias={self.bias is not None}"]
        return ", ".join(parts)

    def _check_inputs(self, inputs: Tensor) -> None:
        order, channels = len(self.shape.kernel), self.settings.groups * self.shape.in_size
        if inputs.ndim != order + 2 or inputs.shape[1] != channels:
            raise LayerError(
                f"{type(self).__name__}: wanted inputs (batch, {channels}, and {order} "
                f"position(s)), got {tuple(inputs.shape)}."
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
        >>> from rankscope.factorize.formats.catalogue import FORMATS
        >>> dense = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        >>> layer = FactorizedConv2d.from_dense(dense, FORMATS["svd"], (4,))
        >>> layer(torch.zeros(1, 16, 8, 8)).shape, layer.cores.num_parameters
        (torch.Size([1, 32, 4, 4]), 576)
    """

    dense_class = nn.Conv2d
