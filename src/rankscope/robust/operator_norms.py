"""The largest factor by which a layer can lengthen a vector, between two bounds that hold.

operator_norm(nn.Conv2d(64, 64, 3, padding=1), (64, 32, 32))
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import SizeError, TooLargeError, UnsupportedModuleError
from rankscope.factorize.convolution import FactorizedConv1d, FactorizedConv2d
from rankscope.factorize.frequency_blocks import Torus, circular_spectrum, frequency_blocks
from rankscope.factorize.linear import FactorizedLinear
from rankscope.robust.orthogonal import (
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
)

_EPSILON = torch.finfo(torch.float64).eps
MAX_ENTRIES = 2**23  # of a matrix that is written out: 64 MiB, seconds
_POWER_STEPS = 50

_PLAIN = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)
ORTHOGONAL = (
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
)
_ADJOINTS = (
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
)
_FACTORIZED = (FactorizedLinear, FactorizedConv1d, FactorizedConv2d)


@dataclass(frozen=True)
class OperatorNorm:
    """A norm between two bounds.

    Args:
        lower: attained by a vector that was found.
        upper: proved, rounding of float64 included.
        method: how the upper bound was got.
    """

    lower: float
    upper: float
    method: str

    def __str__(self) -> str:
        return f"operator norm in {self.lower:.6g} .. {self.upper:.6g} ({self.method})"


def operator_norm(module: nn.Module, input_shape: tuple[int, ...]) -> OperatorNorm:
    r"""Bound the largest singular value of a linear layer on inputs of a given shape.

    On a circle, convolutions are one small matrix for each frequency. Other small layers are
    written out as matrices. With zeros around the image the norm is at most that on a larger
    circle; a power iteration shows from below how near that is.

    Args:
        module: Linear, a convolution, or one of their transposed, factorized or orthogonal forms.
        input_shape: of one input, without the batch.

    Example:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        >>> round(operator_norm(layer, (2,)).upper, 6)
        4.0

    Raises:
        UnsupportedModuleError: if the layer is of another kind, or too large to be written out and
            pads periodically by another number than a circle needs.
        SizeError: if the layer does not take such inputs.

    Reference:
        Sedghi, Gupta & Long (2019), arXiv:1805.10408 (circular convolutions).
    """
    module = plain_form(module)
    if isinstance(module, nn.Linear):
        return _exact(torch.linalg.svdvals(module.weight.detach().double()), "all singular values")
    known = as_convolution(module)
    outputs = _output_shape(module, input_shape)
    is_on_a_circle = known.is_circular and known.takes_every_place_once(input_shape, outputs)
    if not is_on_a_circle and math.prod(input_shape) * math.prod(outputs) <= MAX_ENTRIES:
        values = torch.linalg.svdvals(as_matrix(module, input_shape))
        return _exact(values, "all singular values")
    if known.is_circular and not is_on_a_circle:
        raise UnsupportedModuleError(
            f"operator_norm: {type(module).__name__} pads periodically and gives the shape "
            f"{outputs} for {input_shape} at stride {known.stride}, so that places count more than "
            f"once or not at all; take the padding that gives the sizes over the stride."
        )
    torus = known.torus(input_shape[1:])
    largest = max(
        float(torch.linalg.matrix_norm(blocks, 2).max())
        for blocks, _ in frequency_blocks(known.kernel, torus)
    )
    upper = largest * (1 + _rounding(known.kernel, torus.stride))
    if is_on_a_circle:
        return OperatorNorm(
            largest * (1 - _rounding(known.kernel, torus.stride)), upper, "circular"
        )
    lower = _power_iteration(module, input_shape)
    return OperatorNorm(min(lower, upper), upper, f"circle of {torus.sizes}")


def operator_spectrum(module: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    """All singular values of a linear layer on inputs of a given shape, descending, in float64.

    Raises:
        UnsupportedModuleError: if the layer is of another kind.
        SizeError: if the layer does not take such inputs.
        TooLargeError: if it is no convolution on a circle, and too large to be written out.
    """
    module = plain_form(module)
    if isinstance(module, nn.Linear):
        values: Tensor = torch.linalg.svdvals(module.weight.detach().double())
        return values
    known = as_convolution(module)
    outputs = _output_shape(module, input_shape)
    entries = math.prod(input_shape) * math.prod(outputs)
    if known.is_circular and known.takes_every_place_once(input_shape, outputs):
        return circular_spectrum(known.kernel, known.torus(input_shape[1:]))
    if entries > MAX_ENTRIES:
        raise TooLargeError(
            what=f"operator_spectrum on {input_shape}",
            entries=entries,
            limit=MAX_ENTRIES,
            instead="Use operator_norm, or a smaller image.",
        )
    singular_values: Tensor = torch.linalg.svdvals(as_matrix(module, input_shape))
    return singular_values


def _exact(values: Tensor, method: str) -> OperatorNorm:
    """Singular values of a matrix come out to a small multiple of its size in units of rounding."""
    slack = 8 * max(1, len(values)) * _EPSILON
    largest = float(values.max()) if values.numel() else 0.0
    return OperatorNorm(largest * (1 - slack), largest * (1 + slack), method)


def _rounding(kernel: Tensor, stride: tuple[int, ...]) -> float:
    """Rounding error of the kernel's Fourier sums and of a block's singular values, generously."""
    positions = math.prod(kernel.shape[2:])
    sides = kernel.shape[0] + kernel.shape[1] * math.prod(stride)
    return 8 * _EPSILON * (positions * math.sqrt(sides) + sides)


def _output_shape(module: nn.Module, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    try:
        outputs = linear_part(module)(torch.zeros(1, *input_shape, dtype=torch.float64))
    except (RuntimeError, ValueError) as error:
        raise SizeError(
            f"operator_norm: {type(module).__name__} does not take inputs of shape {input_shape}: "
            f"{error}"
        ) from error
    return tuple(outputs.shape[1:])


def _power_iteration(module: nn.Module, input_shape: tuple[int, ...]) -> float:
    """How much longer the best vector found becomes; the adjoint comes from autograd."""
    apply = linear_part(module)
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(1, *input_shape, dtype=torch.float64, generator=generator)
    largest = 0.0
    for _ in range(_POWER_STEPS):
        vector = vector / vector.norm()
        outputs, pull_back = torch.func.vjp(apply, vector)[:2]
        largest = max(largest, float(outputs.norm()))
        (vector,) = pull_back(outputs)
        if not vector.any():
            break
    return largest * (1 - 8 * _EPSILON)


# --- A linear layer as a map of images, whatever PyTorch calls it ------------------------------


@dataclass(frozen=True, eq=False)
class ConvolutionMap:
    """A convolution, or the adjoint of one, which has the same singular values.

    Args:
        kernel: float64, (out, in of one group, *kernel) of the convolution.
        stride: along each axis.
        dilation: along each axis.
        groups: of channels that do not mix.
        is_circular: whether images continue periodically; otherwise by zeros.
        is_adjoint: whether the layer is the adjoint.
    """

    kernel: Tensor
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    is_circular: bool
    is_adjoint: bool

    def takes_every_place_once(
        self, input_shape: tuple[int, ...], output_shape: tuple[int, ...]
    ) -> bool:
        """Whether the layer's padding makes it a convolution on a circle as large as the image."""
        wide, narrow = input_shape[1:], output_shape[1:]
        if self.is_adjoint:
            wide, narrow = narrow, wide
        return all(n == m * s for n, m, s in zip(wide, narrow, self.stride, strict=True))

    def torus(self, sizes: tuple[int, ...]) -> Torus:
        """Where its blocks are to be looked at, for layers' inputs of these sizes.

        On a circle that is the image itself. Zeros around an image, where no kernel reaches from
        one end to the other, make the same operator as a larger circle on which some entries are
        held at zero and some are not looked at: its norm is at most that of the circle.
        """
        if self.is_adjoint:
            sizes = tuple(n * s for n, s in zip(sizes, self.stride, strict=True))
        if not self.is_circular:
            reaches = (
                d * (k - 1) for d, k in zip(self.dilation, self.kernel.shape[2:], strict=True)
            )
            grown = (n + reach for n, reach in zip(sizes, reaches, strict=True))
            sizes = tuple(math.ceil(n / s) * s for n, s in zip(grown, self.stride, strict=True))
        return Torus(sizes, self.stride, self.dilation, self.groups)


def plain_form(module: nn.Module) -> nn.Module:
    """The same layer with its weight written out."""
    if isinstance(module, _FACTORIZED):
        dense: nn.Module = module.to_dense()
        return dense
    return module


def as_convolution(module: nn.Module) -> ConvolutionMap:
    """Read a convolution's settings.

    Raises:
        UnsupportedModuleError: if it is none, or images continue neither periodically nor by zeros.
    """
    if not isinstance(module, _PLAIN + ORTHOGONAL):
        raise UnsupportedModuleError(
            f"operator_norm knows Linear, Conv1d, Conv2d, their transposed, factorized and "
            f"orthogonal forms, not {type(module).__name__}."
        )
    if module.padding_mode not in ("zeros", "circular"):
        raise UnsupportedModuleError(
            f"operator_norm: {type(module).__name__} continues images by padding_mode="
            f"{module.padding_mode!r}, which repeats entries; known are 'zeros' and 'circular'."
        )
    weight = module.weight() if isinstance(module, ORTHOGONAL) else module.weight
    return ConvolutionMap(
        weight.detach().double(),
        tuple(module.stride),
        tuple(module.dilation),
        module.groups,
        module.padding_mode == "circular",
        isinstance(module, _ADJOINTS),
    )


def linear_part(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The layer on batches in float64, without its bias."""
    clone = copy.deepcopy(module).double().requires_grad_(requires_grad=False).eval()
    bias = getattr(clone, "bias", None)
    if isinstance(bias, Tensor):
        bias.zero_()
    return lambda inputs: clone(inputs)


def as_matrix(module: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    """The layer as a matrix (outputs, inputs), column by column."""
    size = math.prod(input_shape)
    apply = linear_part(module)
    basis = torch.eye(size, dtype=torch.float64).reshape(size, *input_shape)
    return apply(basis).flatten(1).T
