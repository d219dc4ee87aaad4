"""Every combination of kernel, stride, dilation, groups and direction, in float32, by two ways."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from rankscope.factorize import Torus
from rankscope.factorize.frequency_blocks import frequency_blocks
from rankscope.robust import OrthogonalConv2d, OrthogonalConvTranspose2d, Uniform

# In and out, for each group: fewer, as many and more; odd ones, and one alone.
CHANNELS = ((1, 1), (1, 4), (4, 1), (3, 3), (2, 5))
TOLERANCE = 1e-5

Layer = OrthogonalConv2d | OrthogonalConvTranspose2d


def layers(kernel: int, *, is_transposed: bool) -> Iterator[tuple[Layer, int]]:
    """Layers away from where they started, and the rows and columns of their inputs."""
    kind = OrthogonalConvTranspose2d if is_transposed else OrthogonalConv2d
    for stride in range(1, min(kernel, 3) + 1):
        for dilation in (1, 2) if stride == 1 else (1,):
            for groups in (1, 2):
                for sizes in CHANNELS:
                    channels = (groups * sizes[0], groups * sizes[1])
                    layer = kind(
                        *channels,
                        kernel,
                        stride,
                        dilation=dilation,
                        groups=groups,
                        bias=False,
                        initialization=Uniform(),
                    )
                    with torch.no_grad():
                        for parameter in layer.parameters():
                            parameter.normal_()
                    yield layer, 2 if is_transposed else 2 * stride


def by_jacobian(layer: Layer, side: int) -> Tensor:
    shape = (layer.in_channels, side, side)
    size = torch.Size(shape).numel()
    with torch.no_grad():
        columns = layer(torch.eye(size).reshape(size, *shape)).flatten(1)
    values: Tensor = torch.linalg.svdvals(columns.double())
    return values


def by_frequencies(layer: Layer, side: int) -> Tensor:
    rows, columns = layer.stride
    if isinstance(layer, OrthogonalConvTranspose2d):
        sizes = (side * rows, side * columns)  # of what its adjoint takes
    else:
        sizes = (side, side)
    torus = Torus(sizes, (rows, columns), (layer.dilation[0], layer.dilation[1]), layer.groups)
    blocks = frequency_blocks(layer.weight().detach(), torus)
    return torch.cat([torch.linalg.svdvals(block).flatten() for block, _ in blocks])


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("kernel", range(1, 8))
def test_singular_values_are_one(kernel: int, is_transposed: bool) -> None:
    torch.manual_seed(kernel)
    for layer, side in layers(kernel, is_transposed=is_transposed):
        for values in (by_jacobian(layer, side), by_frequencies(layer, side)):
            deviation = float((values - 1).abs().max())
            assert deviation <= TOLERANCE, (repr(layer), deviation)
