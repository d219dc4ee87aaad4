"""A linear layer as what it is: a map of images, whatever PyTorch calls it."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import UnsupportedModuleError
from rankscope.layers.convolution import FactorizedConv1d, FactorizedConv2d
from rankscope.layers.frequency_blocks import Torus
from rankscope.layers.linear import FactorizedLinear
from rankscope.layers.orthogonal.convolution import (
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose1d,
    OrthogonalConvTranspose2d,
)

_PLAIN = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)
_ORTHOGONAL = (
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
    if not isinstance(module, _PLAIN + _ORTHOGONAL):
        raise UnsupportedModuleError(
            f"operator_norm knows Linear, Conv1d, Conv2d, their transposed, factorized and "
            f"orthogonal forms, not {type(module).__name__}."
        )
    if module.padding_mode not in ("zeros", "circular"):
        raise UnsupportedModuleError(
            f"operator_norm: {type(module).__name__} continues images by padding_mode="
            f"{module.padding_mode!r}, which repeats entries; known are 'zeros' and 'circular'."
        )
    weight = module.weight() if isinstance(module, _ORTHOGONAL) else module.weight
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
    twin = copy.deepcopy(module).double().requires_grad_(requires_grad=False).eval()
    bias = getattr(twin, "bias", None)
    if isinstance(bias, Tensor):
        bias.zero_()
    return lambda inputs: twin(inputs)


def as_matrix(module: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    """The layer as a matrix (outputs, inputs), column by column."""
    size = math.prod(input_shape)
    apply = linear_part(module)
    basis = torch.eye(size, dtype=torch.float64).reshape(size, *input_shape)
    return apply(basis).flatten(1).T
