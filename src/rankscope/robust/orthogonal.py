"""Convolutions that preserve norms, used like PyTorch's."""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import LayerError
from rankscope.robust.paraunitary import (
    Cayley,
    Initialization,
    OrthogonalKernel,
    Parametrization,
    Permutation,
    unique_kernel,
)

# --- A weight that is built from parameters, kept as long as they stay the same -------------------


class KeptWeight:
    """The last weight that was built, and what it was built from.

    Parameters are compared by their numbers: writing through `.data` is noticed too. Copies and
    saved files begin empty.
    """

    def __init__(self) -> None:
        self._kept: tuple[list[Tensor], Tensor] | None = None

    def get(self, sources: Iterable[Tensor], build: Callable[[], Tensor]) -> Tensor:
        """The weight of these sources; built again if one of them differs."""
        now = list(sources)
        if self._kept is None or not _same(self._kept[0], now):
            self._kept = ([tensor.clone() for tensor in now], build())
        return self._kept[1]

    def drop(self) -> None:
        """Free the memory."""
        self._kept = None

    def __getstate__(self) -> dict[str, object]:
        return {"_kept": None}


def built_in_full_precision(build: Callable[[], Tensor], device: torch.device) -> Tensor:
    """What `build` gives outside of autocast: short floats hold no orthogonal matrix."""
    with torch.autocast(device.type, enabled=False):
        return build()


def with_kernel(module: nn.Module, change: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of a layer that builds its kernel, with one made of that kernel in its place."""
    clone = copy.deepcopy(module).eval().requires_grad_(requires_grad=False)
    build: Any = module.weight
    with torch.no_grad():
        kernel = change(build())
    setattr(clone, "weight", partial(_given, kernel))  # noqa: B010 - it was a method
    return clone


def _given(kernel: Tensor) -> Tensor:
    return kernel


def _same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
        for a, b in zip(first, second, strict=True)
    )


# --- Circular padding, and its adjoint: on a circle a convolution neither gains nor loses an edge


Margins = tuple[tuple[int, int], ...]


def circular_margins(
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Margins:
    """Margins before and after each axis that make the output the input's size over the stride.

    Example:
        >>> circular_margins((3, 6), (1, 2), (1, 1))
        ((1, 1), (2, 2))
    """
    margins = []
    for taps, step, spacing in zip(kernel, stride, dilation, strict=True):
        reach = spacing * (taps - 1)  # from the first tap to the last
        shift = step // 2
        margins.append(((reach + 1) // 2 - shift, reach // 2 + shift - step + 1))
    return tuple(margins)


def pad_circularly(inputs: Tensor, margins: Margins) -> Tensor:
    """Continue (batch, channels, *sizes) periodically, also by more than its size."""
    sizes = inputs.shape[2:]
    if all(max(sides) <= size for sides, size in zip(margins, sizes, strict=True)):
        flat = [number for sides in reversed(margins) for number in sides]
        return functional.pad(inputs, flat, mode="circular")
    for axis, ((before, after), size) in enumerate(zip(margins, sizes, strict=True), start=2):
        places = torch.arange(-before, size + after, device=inputs.device) % size
        inputs = inputs.index_select(axis, places)
    return inputs


def fold_circularly(inputs: Tensor, margins: Margins) -> Tensor:
    """Add to every entry what stands in the margins for it: the adjoint of the padding."""
    for axis, (before, after) in enumerate(margins, start=2):
        size = inputs.shape[axis] - before - after
        places = torch.arange(-before, size + after, device=inputs.device) % size
        shape = [*inputs.shape]
        shape[axis] = size
        inputs = inputs.new_zeros(shape).index_add(axis, places, inputs)
    return inputs


Sizes = int | Sequence[int]
Padding = Literal["auto"] | Sizes
_CAYLEY, _PERMUTATION = Cayley(), Permutation()


class _OrthogonalConv(nn.Module):
    """What the four layers share: settings, the kernel, and its cache."""

    axes: ClassVar[int]
    is_transposed: ClassVar[bool] = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Padding = "auto",
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "circular",
        *,
        parametrization: Parametrization = _CAYLEY,
        initialization: Initialization = _PERMUTATION,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = self._sizes("kernel_size", kernel_size)
        self.stride = self._sizes("stride", stride)
        self.dilation = self._sizes("dilation", dilation)
        self.padding_mode = padding_mode
        self._require_possible()
        self.margins = self._margins(padding)
        channels = (in_channels, out_channels)
        self.kernel = OrthogonalKernel(
            channels[::-1] if self.is_transposed else channels,
            self.kernel_size,
            self.stride,
            groups,
            parametrization,
            initialization,
        )
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self._kept = KeptWeight()

    def weight(self) -> Tensor:
        """The kernel as PyTorch's layer of the same name would hold it.

        In evaluation it is kept, and built again when a parameter differs from the one it was
        built from: writing through `.data` is noticed too.
        """
        if self.training or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._built()
        return self._kept.get(self.kernel.state_dict().values(), self._built)

    def _built(self) -> Tensor:
        return built_in_full_precision(self.kernel, next(self.kernel.parameters()).device)

    def train(self, mode: bool = True) -> "_OrthogonalConv":
        """Set the mode as every module does; the kept kernel is dropped."""
        self._kept.drop()
        super().train(mode)
        return self

    def extra_repr(self) -> str:
        """Settings shown in `repr`."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, dilation={self.dilation}, groups={self.groups}, "
            f"padding_mode={self.padding_mode!r}"
        )

    def _sizes(self, name: str, value: Sizes) -> tuple[int, ...]:
        sizes = (value,) * self.axes if isinstance(value, int) else tuple(value)
        if len(sizes) != self.axes or min(sizes) < 1:
            raise LayerError(
                f"{type(self).__name__}: {name} needs {self.axes} numbers of at least 1, "
                f"got {value}."
            )
        return sizes

    def _require_possible(self) -> None:
        if self.padding_mode not in ("circular", "zeros"):
            raise LayerError(
                f"{type(self).__name__}: padding_mode is 'circular' or 'zeros', got "
                f"{self.padding_mode!r}; reflecting or repeating an edge raises norms."
            )
        if any(s > 1 and d > 1 for s, d in zip(self.stride, self.dilation, strict=True)):
            raise LayerError(
                f"{type(self).__name__}: stride {self.stride} and dilation {self.dilation} along "
                f"one axis leave inputs out, so that norms cannot be kept."
            )

    def _margins(self, padding: Padding) -> Margins:
        circular = circular_margins(self.kernel_size, self.stride, self.dilation)
        if padding == "auto":
            return circular
        sizes = (padding,) * self.axes if isinstance(padding, int) else tuple(padding)
        margins = tuple((int(size), int(size)) for size in sizes)
        if self.padding_mode == "circular" and margins != circular:
            raise LayerError(
                f"{type(self).__name__}: on a circle the margins must be {circular}, so that every "
                f"input counts once; got padding {padding}. Leave padding='auto'."
            )
        return margins

    def _require_fitting(self, inputs: Tensor) -> None:
        sizes = tuple(inputs.shape[2:])
        if inputs.ndim != self.axes + 2 or inputs.shape[1] != self.in_channels:
            raise LayerError(
                f"{type(self).__name__}: inputs must be (batch, {self.in_channels}, "
                f"{self.axes} sizes), got {tuple(inputs.shape)}."
            )
        steps = (1,) * self.axes if self.is_transposed else self.stride
        if self.padding_mode == "circular" and any(
            n % s for n, s in zip(sizes, steps, strict=True)
        ):
            raise LayerError(
                f"{type(self).__name__}: on a circle stride {self.stride} must divide the input's "
                f"sizes {sizes}."
            )


class _Forward(_OrthogonalConv):
    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, in_channels, *sizes) to (batch, out_channels, *sizes / stride)."""
        self._require_fitting(inputs)
        kernel = self.weight().to(inputs.dtype)
        if self.padding_mode == "circular":
            padded = pad_circularly(inputs, self.margins)
        else:
            padded = functional.pad(inputs, [n for sides in self.margins[::-1] for n in sides])
        convolve = functional.conv1d if self.axes == 1 else functional.conv2d
        bias = None if self.bias is None else self.bias.to(inputs.dtype)
        return convolve(padded, kernel, bias, self.stride, 0, self.dilation, self.groups)


class _Transposed(_OrthogonalConv):
    is_transposed = True

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, in_channels, *sizes) to (batch, out_channels, *sizes * stride)."""
        self._require_fitting(inputs)
        kernel = self.weight().to(inputs.dtype)
        convolve = functional.conv_transpose1d if self.axes == 1 else functional.conv_transpose2d
        outputs = convolve(
            inputs, kernel, stride=self.stride, groups=self.groups, dilation=self.dilation
        )
        if self.padding_mode == "circular":
            outputs = fold_circularly(outputs, self.margins)
        else:
            for axis, (before, after) in enumerate(self.margins, start=2):
                outputs = outputs.narrow(axis, before, outputs.shape[axis] - before - after)
        if self.bias is None:
            return outputs
        return outputs + self.bias.to(outputs.dtype).view(-1, *[1] * self.axes)


class OrthogonalConv2d(_Forward):
    """A two-dimensional convolution that preserves norms.

    The signature is that of `nn.Conv2d`. With circular padding the operator's singular values are
    all 1: outputs have the norm of inputs if there are at least stride² times as many channels out
    as in, and otherwise the adjoint does. With zero padding no norm grows, but edges lose some.

    Example:
        >>> layer = OrthogonalConv2d(4, 4, 3, bias=False)
        >>> inputs = torch.randn(2, 4, 8, 8)
        >>> bool(torch.isclose(layer(inputs).norm(), inputs.norm()))
        True

    Raises:
        LayerError: if sizes do not fit, or the settings leave inputs out.

    Reference:
        Su, Byeon & Huang (2022), Scaling-up Diverse Orthogonal Convolutional Networks by a
        Paraunitary Framework, arXiv:2106.09121.
    """

    axes = 2

    def to_conv2d(self) -> nn.Module:
        """A plain convolution with the kernel as it is now (behind a padding, if it is uneven)."""
        pad = nn.CircularPad2d if self.padding_mode == "circular" else nn.ZeroPad2d
        return _plain(self, nn.Conv2d, lambda *sides: pad(sides))


class OrthogonalConv1d(_Forward):
    """A one-dimensional convolution that preserves norms; see `OrthogonalConv2d`."""

    axes = 1

    def to_conv1d(self) -> nn.Module:
        """A plain convolution with the kernel as it is now (behind a padding, if it is uneven)."""
        pad = nn.CircularPad1d if self.padding_mode == "circular" else nn.ZeroPad1d
        return _plain(self, nn.Conv1d, lambda *sides: pad(sides))


class OrthogonalConvTranspose2d(_Transposed):
    """The adjoint of an `OrthogonalConv2d`, with parameters of its own."""

    axes = 2


class OrthogonalConvTranspose1d(_Transposed):
    """The adjoint of an `OrthogonalConv1d`, with parameters of its own."""

    axes = 1


def _plain(
    layer: _Forward, convolution: type[nn.Module], padding: Callable[..., nn.Module]
) -> nn.Module:
    is_even = all(before == after for before, after in layer.margins)
    plain = convolution(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        stride=layer.stride,
        padding=tuple(before for before, _ in layer.margins) if is_even else 0,
        dilation=layer.dilation,
        groups=layer.groups,
        bias=layer.bias is not None,
        padding_mode=layer.padding_mode,
    )
    kernel = unique_kernel(layer.weight())
    state = {"weight": kernel} if layer.bias is None else {"weight": kernel, "bias": layer.bias}
    plain.to(kernel.dtype).load_state_dict(state)
    if is_even:
        return plain
    return nn.Sequential(padding(*[n for pair in layer.margins[::-1] for n in pair]), plain)
