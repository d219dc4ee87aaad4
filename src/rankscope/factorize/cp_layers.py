"""CP layers: factorized layers in one format, made at a rank, or out of a dense weight exactly.

CPConv2d(64, 128, 3, rank=matched_rank(WeightShape(128, 64, (3, 3))), padding=1)
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from rankscope.errors import LayerError
from rankscope.factorize.convolution import ConvolutionSettings, FactorizedConv1d, FactorizedConv2d
from rankscope.factorize.formats.format import Format, WeightShape
from rankscope.factorize.formats.plain import CPFormat, SVDFormat
from rankscope.factorize.layer import CPComponents, cores_of, sorted_components
from rankscope.factorize.linear import FactorizedLinear

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


def matched_rank(shape: WeightShape) -> int:
    r"""The rank at which a CP layer has as many parameters as the dense one, as nearly as it can.

    .. math:: R = \mathrm{round} \frac{S O k_x k_y}{S + O + k_x k_y + 1}

    where 1 counts the weight of a component, and a matrix has no :math:`k_x k_y` in the sum.

    Example:
        >>> matched_rank(WeightShape(512, 512, (3, 3))), matched_rank(WeightShape(10, 512))
        (2282, 10)
    """
    return max(1, round(shape.num_parameters / cp_unit(shape)))


def cp_unit(shape: WeightShape) -> int:
    """The numbers of one component with its weight: S + O + kx ky + 1, or S + O + 1.

    Example:
        >>> cp_unit(WeightShape(64, 32, (3, 3))), cp_unit(WeightShape(64, 32))
        (106, 97)
    """
    places = math.prod(shape.kernel)
    return shape.out_size + shape.in_size + (places if places > 1 else 0) + 1


def CPConv2d(  # one class for all formats; the name says how it is called
    in_channels: int,
    out_channels: int,
    kernel_size: int | tuple[int, int],
    *,
    rank: int,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] | str = 0,
    dilation: int | tuple[int, int] = 1,
    bias: bool = True,
    padding_mode: PaddingMode = "zeros",
    generator: torch.Generator | None = None,
) -> FactorizedConv2d:
    """A convolution in CP form to train from scratch; 1 x 1 kernels are matrices.

    Entries of the kernel have variance 2 / (in_channels kx ky), biases are zero.

    Example:
        >>> layer = CPConv2d(16, 32, 3, rank=4, padding=1)
        >>> layer.cores.num_parameters, layer.normalized().weights.shape
        (228, torch.Size([4]))

    Raises:
        LayerError: if the rank does not fit.
    """
    dense = nn.Conv2d(
        in_channels,
        out_channels,
        kernel_size,
        stride=stride,
        padding=padding,
        dilation=dilation,
        bias=bias,
        padding_mode=padding_mode,
        device="meta",
    )
    shape = WeightShape.of(dense.weight)
    zeros = torch.zeros(out_channels) if bias else None
    cores = _random_cores(shape, rank, generator)
    settings = ConvolutionSettings.of(dense)
    return FactorizedConv2d(cp_format(shape), (rank,), shape, settings, cores, zeros)


def CPLinear(
    in_features: int,
    out_features: int,
    *,
    rank: int,
    bias: bool = True,
    generator: torch.Generator | None = None,
) -> FactorizedLinear:
    """A linear map in CP form, which is a product of two matrices, to train from scratch.

    Example:
        >>> CPLinear(20, 30, rank=4).cores.num_parameters
        200

    Raises:
        LayerError: if the rank does not fit.
    """
    shape = WeightShape(out_features, in_features)
    zeros = torch.zeros(out_features) if bias else None
    cores = _random_cores(shape, rank, generator)
    return FactorizedLinear.from_cores(cores, shape, cp_format(shape), (rank,), bias=zeros)


def cp_format(shape: WeightShape) -> Format:
    """CP, or the SVD for weights without a kernel, which is the same."""
    return SVDFormat() if math.prod(shape.kernel) == 1 else CPFormat()


def _random_cores(
    shape: WeightShape, rank: int, generator: torch.Generator | None
) -> dict[str, Tensor]:
    r"""Normal, all with one deviation: n cores with :math:`\sigma^{2n} R = 2 / (S k_x k_y)`."""
    format = cp_format(shape)
    format.check(shape, (rank,))
    sizes = format.core_shapes(shape, (rank,))
    variance = 2 / (shape.in_size * math.prod(shape.kernel))
    deviation = (variance / rank) ** (0.5 / len(sizes))
    return {
        name: torch.randn(size, generator=generator) * deviation for name, size in sizes.items()
    }


def exact_components(weight: Tensor) -> CPComponents:
    r"""Write a dense weight exactly as a sum of outer products that are orthogonal to each other.

    The smallest of the three positions (inputs, outputs, all places of the kernel) is rotated to
    its principal axes, and each slice along it decomposed by its singular vectors. There are as
    many components as the trivial bound on the CP rank allows, the product of the two smaller
    sizes, and :math:`\sum_r \lambda_r^2 = \lVert K \rVert_F^2`: nothing cancels, unlike in fits.

    Args:
        weight: (out_size, in_size, *kernel).

    Example:
        >>> exact_components(torch.ones(4, 3, 3, 3)).weights.shape
        torch.Size([12])

    Raises:
        LayerError: if the weight is not finite.

    Reference:
        Kolda & Bader (2009), Sec. 3.1 (the bound on the rank), doi:10.1137/07070111X.
    """
    if not bool(torch.isfinite(weight).all()):
        wrong = int((~torch.isfinite(weight)).sum())
        raise LayerError(
            f"exact_components: {wrong:,} of {weight.numel():,} numbers of the weight are not "
            "finite."
        )
    tensor = weight.detach().double().reshape(*weight.shape[:2], -1)
    smallest = min(range(3), key=lambda place: (tensor.shape[place], -place))
    first = tensor.movedim(smallest, 0)
    axes = torch.linalg.svd(first.flatten(1), full_matrices=False)[0]
    slices = torch.tensordot(axes.T, first, dims=1)
    left, values, right = torch.linalg.svd(slices, full_matrices=False)
    count = values.shape[1]
    parts = [
        axes.T.repeat_interleave(count, dim=0) * values.flatten()[:, None],
        left.mT.flatten(0, 1),
        right.flatten(0, 1),
    ]
    others = [place for place in range(3) if place != smallest]
    outputs, inputs, kernels = (
        part for _, part in sorted(zip([smallest, *others], parts, strict=True), key=_place)
    )
    kernels = kernels.reshape(len(kernels), *weight.shape[2:])
    return sorted_components(inputs, outputs, kernels)[0]


def _place(pair: tuple[int, Tensor]) -> int:
    return pair[0]


def as_cp(layer: nn.Linear | nn.Conv1d | nn.Conv2d) -> nn.Module:
    """The same layer, to rounding, in CP form with as many components as it can need.

    Raises:
        LayerError: if a convolution is in groups, or a weight not finite.
    """
    components = exact_components(layer.weight)
    cores = {name: core.to(layer.weight.dtype) for name, core in cores_of(components).items()}
    shape, ranks = components.shape, (len(components.weights),)
    if isinstance(layer, nn.Linear):
        built: nn.Module = FactorizedLinear.from_cores(
            cores, shape, cp_format(shape), ranks, bias=layer.bias
        )
        return built.train(layer.training)
    if layer.groups != 1:
        raise LayerError(
            f"as_cp: {type(layer).__name__} in {layer.groups} groups; wanted 1. Leave it dense."
        )
    kind = FactorizedConv2d if isinstance(layer, nn.Conv2d) else FactorizedConv1d
    settings = ConvolutionSettings.of(layer)
    return kind(cp_format(shape), ranks, shape, settings, cores, layer.bias).train(layer.training)
