"""Operators against the dense matrix that PyTorch's own convolution gives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.auditing import Geometry, convolution_spectrum, geometries
from rankscope.auditing.spectra import depthwise, image_side
from rankscope.errors import MatrixError

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def operator_values(layer: nn.Module, channels: int, side: int, order: int) -> torch.Tensor:
    """Columns are what a convolution answers to every unit image."""
    size = channels * side**order
    images = torch.eye(size, dtype=torch.float64).reshape(size, channels, *[side] * order)
    with torch.no_grad():
        answers: torch.Tensor = layer(images).flatten(1)
    values: torch.Tensor = torch.linalg.svdvals(answers)
    return values


@settings(deadline=None, max_examples=40)
@given(
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    geometry=st.builds(Geometry, st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
    extent=st.integers(1, 3),
    order=st.integers(1, 2),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_the_spectrum_is_that_of_the_convolution_on_a_torus(
    channels: tuple[int, int],
    geometry: Geometry,
    extent: int,
    order: int,
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(0)
    inputs, outputs = (geometry.groups * count for count in channels)
    side = 6
    layer = CONVOLUTIONS[order](
        inputs,
        outputs,
        extent,
        stride=geometry.stride,
        dilation=geometry.dilation,
        groups=geometry.groups,
        bias=False,
        padding=geometry.dilation * (extent - 1) // 2,
        padding_mode="circular",
    ).double()
    layer.weight.data = layer.weight.data.to(dtype).double()
    if geometry.dilation * (extent - 1) % 2:
        # An even kernel pads more on one side than a layer can say; pad by hand.
        layer.padding = (0,) * order
        layer._reversed_padding_repeated_twice = [0, geometry.dilation * (extent - 1)] * order
    result = convolution_spectrum(layer.weight.detach().to(dtype), side, geometry)
    expected = operator_values(layer, inputs, side, order)
    assert len(result.values) == len(expected)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(torch.from_numpy(result.values), expected, rtol=0, atol=tolerance)


def test_a_volume_is_seen_too() -> None:
    layer = nn.Conv3d(2, 3, 3, padding=1, padding_mode="circular", bias=False).double()
    result = convolution_spectrum(layer.weight.detach(), 4, Geometry())
    expected = operator_values(layer, 2, 4, 3)
    torch.testing.assert_close(torch.from_numpy(result.values), expected, rtol=0, atol=1e-10)


def test_patches_that_do_not_overlap_have_the_spectrum_of_their_flattened_kernel() -> None:
    kernel = torch.randn(5, 3, 4, 4, dtype=torch.float64)
    result = convolution_spectrum(kernel, 8, Geometry(stride=4))
    expected = torch.linalg.svdvals(kernel.flatten(1)).repeat_interleave(4)
    torch.testing.assert_close(torch.from_numpy(result.values), expected)


def test_random_kernels_give_operators_that_look_random() -> None:
    kernel = torch.randn(48, 32, 3, 3, generator=torch.Generator().manual_seed(0))
    row = convolution_spectrum(kernel, 16, Geometry()).to_row("operator")
    assert row.shape == (48, 32)
    assert row.random_distance < 0.03
    assert row.outliers < row.num_values / 100


def test_many_channels_are_seen_on_small_images_but_never_smaller_than_the_kernel() -> None:
    plain = Geometry()
    sides = [image_side((size, size, 3, 3), plain) for size in (16, 128, 256, 512, 1024)]
    assert sides == sorted(sides, reverse=True)
    assert (sides[0], sides[-1]) == (32, 8)
    assert image_side((512, 512, 31, 31), plain) == 31
    assert image_side((512, 512, 5, 5), Geometry(stride=3, dilation=4)) == 18
    assert image_side((512, 512, 5, 5), Geometry(stride=3), 7) == 9


@pytest.mark.parametrize(
    ("side", "geometry", "message"),
    [
        (7, Geometry(stride=2), "torus of \\(7,\\) does not fit a stride of \\(2,\\)"),
        (0, Geometry(), "torus of \\(0,\\) does not fit a stride of \\(1,\\)"),
        (8, Geometry(groups=3), "4 channels cannot be shared out among 3 groups"),
    ],
)
def test_a_geometry_that_does_not_fit_is_refused(
    side: int, geometry: Geometry, message: str
) -> None:
    with pytest.raises(MatrixError, match=message):
        convolution_spectrum(torch.ones(4, 1, 3), side, geometry)


def test_geometries_of_modules_are_read_by_the_names_of_their_weights() -> None:
    model = nn.Sequential(
        nn.Conv1d(4, 4, 3, dilation=2, groups=4), nn.ReLU(), nn.Conv2d(3, 8, 3, stride=(1, 2))
    )
    assert geometries(model) == {"0.weight": Geometry(dilation=2, groups=4)}
    assert geometries(nn.Conv2d(1, 2, 3)) == {"weight": Geometry()}


@pytest.mark.parametrize(
    ("geometry", "said"),
    [
        (Geometry(), "stride 1"),
        (Geometry(2, 3, 4), "stride 2, dilation 3, 4 groups"),
        (depthwise((8, 1, 3), Geometry()), "stride 1, 8 groups"),
    ],
)
def test_a_geometry_says_what_is_assumed(geometry: Geometry, said: str) -> None:
    assert str(geometry) == said
