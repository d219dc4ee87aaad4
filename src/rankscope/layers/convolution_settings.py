"""How a convolution moves over its inputs, as PyTorch says it, and as a padding and a window."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import LayerError
from rankscope.layers.formats.format import WeightShape, Window

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
        """Those of a dense convolution."""
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
        """As PyTorch's own convolutions take them."""
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
    def pads_first(self) -> bool:
        """Whether inputs are padded before the window moves: other modes, or uneven margins."""
        uneven = any(before != after for before, after in self.margins)
        return uneven or (self.padding_mode != "zeros" and any(map(any, self.margins)))

    @property
    def window(self) -> Window:
        """How the kernel moves over the inputs, once they are padded."""
        padding = tuple(0 if self.pads_first else before for before, _ in self.margins)
        return Window(self.stride, padding, self.dilation, self.groups)

    def pad(self, inputs: Tensor) -> Tensor:
        """Inputs (batch, channels, *positions) with what is not padded by the window."""
        if not self.pads_first:
            return inputs
        margins = [size for pair in reversed(self.margins) for size in pair]
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        return functional.pad(inputs, margins, mode=mode)


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
