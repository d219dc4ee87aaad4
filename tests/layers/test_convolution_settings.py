"""Padding and windows of convolutions."""

import pytest
from torch import nn

from rankscope.errors import LayerError
from rankscope.layers.convolution import ConvolutionSettings, check_convolution
from rankscope.layers.formats.format import Window


def test_even_kernels_are_padded_more_on_the_right() -> None:
    settings = ConvolutionSettings.of(nn.Conv1d(4, 4, 4, padding="same", dilation=3))
    assert settings.margins == ((4, 5),)
    assert settings.window == Window((1,), (4,), (3,), 1, padding_after=(5,))
    assert settings.window.margins == settings.margins


def test_zeros_on_both_sides_are_left_to_the_window() -> None:
    settings = ConvolutionSettings.of(nn.Conv2d(4, 4, (3, 5), padding="same", groups=2))
    assert settings.window == Window((1, 1), (1, 2), (1, 1), 2)
    assert settings.window.paddings([0, 1]) == ([], [1, 2])
    assert settings.window.paddings([1]) == ([], [0, 2])


def test_nothing_is_padded_first_where_nothing_is_padded() -> None:
    valid = ConvolutionSettings.of(nn.Conv2d(4, 4, 3, padding="valid", padding_mode="circular"))
    assert valid.margins == ((0, 0), (0, 0))
    assert valid.window == Window((1, 1), (0, 0), (1, 1))


@pytest.mark.parametrize(
    ("dense", "reason"),
    [
        (nn.ConvTranspose2d(4, 4, 3), "ConvTranspose2d: transposed convolutions are not"),
        (nn.ConvTranspose1d(4, 4, 3), "ConvTranspose1d: transposed convolutions are not"),
        (nn.Conv3d(4, 4, 3), "Conv3d: kernels of three positions are not factorized"),
        (nn.Conv1d(4, 4, 3), "Conv1d: wanted a Conv2d. Leave it dense."),
        (nn.Linear(4, 4), "Linear: wanted a Conv2d. Leave it dense."),
        (
            nn.Conv2d(6, 12, 3, groups=6),
            r"Conv2d: depthwise, each of its 6 groups reads 1 channel; a kernel \(12, 1, 3, 3\)",
        ),
    ],
)
def test_what_cannot_be_factorized_is_refused_by_name(dense: nn.Module, reason: str) -> None:
    with pytest.raises(LayerError, match=reason):
        check_convolution(dense, nn.Conv2d)
