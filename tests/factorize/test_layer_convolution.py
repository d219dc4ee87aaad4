"""Factorized convolutions against dense ones, with all settings that PyTorch knows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from rankscope.diagrams import IN_ORDER, to_module
from rankscope.errors import LayerError
from rankscope.factorize import (
    FORMATS,
    ConvolutionSettings,
    FactorizedConv,
    FactorizedConv1d,
    FactorizedConv2d,
    Format,
    Path,
    Ranks,
    WeightShape,
    Window,
    random_cores,
)
from rankscope.factorize.convolution import check_convolution

FORMAT = pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
DIRECT = pytest.mark.parametrize("name", ["svd", "tucker", "tensor-train", "r-tucker"])
PATH = pytest.mark.parametrize("path", [None, *Path])


def _draw_dense(data: st.DataObject, order: int) -> nn.Conv1d | nn.Conv2d:
    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(order))

    mode = data.draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"]))
    padding = data.draw(st.sampled_from(["numbers", "same", "valid"]))
    groups = data.draw(st.integers(1, 3))
    layer = (nn.Conv1d, nn.Conv2d)[order - 1]
    return layer(
        groups * data.draw(st.sampled_from([2, 4, 6])),
        groups * data.draw(st.sampled_from([1, 3, 4])),
        each(1, 4),  # type: ignore[arg-type]
        stride=1 if padding == "same" else each(1, 3),  # type: ignore[arg-type]
        padding=each(0, 2) if padding == "numbers" else padding,  # type: ignore[arg-type]
        dilation=each(1, 2),  # type: ignore[arg-type]
        groups=groups,
        bias=data.draw(st.booleans()),
        padding_mode=mode,  # type: ignore[arg-type]
        dtype=torch.float64,
    )


def _expected(dense: nn.Conv1d | nn.Conv2d, inputs: Tensor) -> Tensor:
    """The definition of nn.Conv*d, whose own "same" warns where kernels are even."""
    described = ConvolutionSettings.of(dense)
    margins = [size for pair in reversed(described.margins) for size in pair]
    mode = "constant" if dense.padding_mode == "zeros" else dense.padding_mode
    convolution = functional.conv1d if isinstance(dense, nn.Conv1d) else functional.conv2d
    return convolution(
        functional.pad(inputs, margins, mode=mode),
        dense.weight,
        dense.bias,
        dense.stride,
        0,
        dense.dilation,
        dense.groups,
    )


def _layer(dense: nn.Conv1d | nn.Conv2d, format: Format, ranks: Ranks) -> FactorizedConv:
    layer = FactorizedConv1d if isinstance(dense, nn.Conv1d) else FactorizedConv2d
    return layer.from_dense(dense, format, ranks)


def _shape(dense: nn.Conv1d | nn.Conv2d) -> WeightShape:
    return WeightShape.of(dense.weight.chunk(dense.groups)[0])


@DIRECT
@pytest.mark.parametrize("order", [1, 2])
@settings(deadline=None, max_examples=12)
@given(data=st.data())
def test_at_full_ranks_outputs_are_those_of_the_dense_convolution(
    name: str, order: int, data: st.DataObject
) -> None:
    dense, format = _draw_dense(data, order), FORMATS[name]
    shape = _shape(dense)
    if format.refusal(shape) is not None:
        return
    layer = _layer(dense, format, format.full_ranks(shape))
    layer.path = data.draw(st.sampled_from([None, *Path]))
    layer.train(data.draw(st.booleans()))
    inputs = torch.randn(2, dense.in_channels, *(11, 9)[:order], dtype=torch.float64)
    wanted = _expected(dense, inputs)
    torch.testing.assert_close(layer(inputs), wanted, rtol=0, atol=1e-10)
    torch.testing.assert_close(layer(inputs[0]), wanted[0], rtol=0, atol=1e-10)
    rebuilt = layer.to_dense()
    assert ConvolutionSettings.of(rebuilt) == ConvolutionSettings.of(dense)
    torch.testing.assert_close(rebuilt.weight, dense.weight, rtol=0, atol=1e-10)


@FORMAT
@settings(deadline=None, max_examples=12)
@given(data=st.data())
def test_the_diagram_computes_the_layer(format: Format, data: st.DataObject) -> None:
    dense = _draw_dense(data, data.draw(st.integers(1, 2)))
    shape = _shape(dense)
    if format.refusal(shape) is not None:
        return
    described = ConvolutionSettings.of(dense)
    ranks = tuple(data.draw(st.integers(1, min(3, limit))) for limit in format.max_ranks(shape))
    cores = random_cores(format, shape, ranks, groups=dense.groups, dtype=torch.float64)
    kind = FactorizedConv1d if isinstance(dense, nn.Conv1d) else FactorizedConv2d
    layer = kind(format, ranks, shape, described, cores, dense.bias, Path.CHAIN)
    sizes = (11, 9)[: len(shape.kernel)]
    inputs = torch.randn(2, dense.in_channels, *sizes, dtype=torch.float64)
    arrays = dict(layer.named_parameters())
    drawn = to_module(layer.diagram(2, *sizes), arrays, method=IN_ORDER)
    torch.testing.assert_close(drawn(inputs), layer(inputs))
    one = to_module(layer.diagram(*sizes), arrays)
    torch.testing.assert_close(one(inputs[0]), layer(inputs[0]))


def test_a_diagram_needs_the_positions() -> None:
    layer = FactorizedConv2d.from_dense(nn.Conv2d(4, 4, 3), FORMATS["svd"], (2,))
    message = r"wanted 2 position\(s\), or a batch and 2 position\(s\), got \(8,\)"
    with pytest.raises(LayerError, match=message):
        layer.diagram(8)


@FORMAT
@PATH
def test_at_low_ranks_outputs_are_those_of_the_rebuilt_kernel(
    format: Format, path: Path | None
) -> None:
    dense = nn.Conv2d(16, 8, 3, 2, 1, groups=2, padding_mode="reflect", dtype=torch.float64)
    ranks = (2,) * len(format.max_ranks(_shape(dense)))
    layer = FactorizedConv2d.from_dense(dense, format, ranks).eval()
    layer.path = path
    inputs = torch.randn(2, 16, 7, 6, dtype=torch.float64)
    wanted = layer.to_dense()(inputs)
    torch.testing.assert_close(layer(inputs), wanted)
    with torch.no_grad():
        torch.testing.assert_close(layer(inputs), wanted)


@PATH
def test_gradients_are_the_same_on_every_path_and_in_evaluation(path: Path | None) -> None:
    dense = nn.Conv2d(6, 4, 3, dtype=torch.float64)
    layer = FactorizedConv2d.from_dense(dense, FORMATS["tucker"], (2, 2))
    inputs = torch.randn(2, 6, 5, 5, dtype=torch.float64)
    wanted = None
    for mode in (True, False):
        layer.path = Path.CHAIN
        found = torch.autograd.grad(layer(inputs).square().sum(), tuple(layer.parameters()))
        wanted = wanted or found
        layer.path = path
        layer.train(mode)
        found = torch.autograd.grad(layer(inputs).square().sum(), tuple(layer.parameters()))
        torch.testing.assert_close(found, wanted)


def test_a_merged_kernel_follows_its_cores() -> None:
    layer = FactorizedConv2d.from_dense(nn.Conv2d(6, 4, 3), FORMATS["svd"], (2,)).eval()
    layer.path = Path.MERGED
    inputs = torch.randn(1, 6, 5, 5)
    with torch.no_grad():
        before = layer(inputs)
        layer.cores.get_parameter("left").mul_(2)
        assert layer.bias is not None
        bias = layer.bias[:, None, None]
        torch.testing.assert_close(layer(inputs) - bias, 2 * (before - bias))
        layer.double()
        assert layer(inputs.double()).dtype == torch.float64


def test_quantized_cores_can_be_merged() -> None:
    layer = FactorizedConv2d.from_dense(nn.Conv2d(6, 4, 3), FORMATS["tucker"], (2, 2)).eval()
    inputs = torch.randn(1, 6, 5, 5)
    layer.quantize(8)
    layer.path = Path.CHAIN
    chain = layer(inputs)
    layer.path = Path.MERGED
    for _ in range(2):
        torch.testing.assert_close(layer(inputs), chain)


def test_the_cores_of_a_group_write_the_kernel_of_that_group() -> None:
    dense = nn.Conv1d(8, 6, 3, groups=2, dtype=torch.float64)
    with torch.no_grad():
        dense.weight[3:] = 0
    layer = FactorizedConv1d.from_dense(dense, FORMATS["tucker"], (2, 2))
    rebuilt = layer.to_dense().weight
    assert not rebuilt[3:].any()
    assert rebuilt[:3].any()
    assert layer.cores.num_parameters == 2 * FORMATS["tucker"].num_parameters(_shape(dense), (2, 2))


def test_a_large_chain_ends_in_channels_last_memory() -> None:
    layer = FactorizedConv2d.from_dense(nn.Conv2d(8, 8, 3), FORMATS["tucker"], (4, 4))
    layer.path = Path.CHAIN
    outputs = layer(torch.randn(8, 8, 66, 66))
    assert outputs.is_contiguous(memory_format=torch.channels_last)


def test_an_empty_batch_has_empty_outputs() -> None:
    dense = nn.Conv2d(8, 4, 3, padding=1)
    for name in ("svd", "r-tensor-train"):
        format = FORMATS[name]
        layer = FactorizedConv2d.from_dense(dense, format, format.full_ranks(_shape(dense)))
        for path in (None, *Path):
            layer.path = path
            assert layer(torch.zeros(0, 8, 5, 5)).shape == (0, 4, 5, 5)


def test_inputs_that_do_not_fit_are_refused() -> None:
    layer = FactorizedConv2d.from_dense(nn.Conv2d(8, 4, 3), FORMATS["svd"], (2,))
    with pytest.raises(LayerError, match=r"wanted inputs \(batch, 8, .* got \(1, 7, 5, 5\)"):
        layer(torch.zeros(1, 7, 5, 5))
    with pytest.raises(LayerError, match=r"2 position\(s\)\), got \(2, 2, 8, 5, 5\)"):
        layer(torch.zeros(2, 2, 8, 5, 5))


def test_what_cannot_be_factorized_is_refused() -> None:
    with pytest.raises(LayerError, match="Conv3d: kernels of three positions"):
        FactorizedConv2d.from_dense(nn.Conv3d(4, 4, 3), FORMATS["svd"], (1,))
    with pytest.raises(LayerError, match=r"from 1 to \(12,\), got \(13,\)"):
        FactorizedConv2d.from_dense(nn.Conv2d(4, 4, 3), FORMATS["svd"], (13,))


def test_it_prints_what_it_is() -> None:
    dense = nn.Conv2d(8, 6, (3, 1), 2, (1, 0), groups=2, bias=False, padding_mode="circular")
    printed = repr(FactorizedConv2d.from_dense(dense, FORMATS["svd"], (2,)))
    assert "8 -> 6, 3x1, stride=(2, 2), padding=(1, 0), groups=2, mode=circular" in printed
    assert "svd at ranks (2,), bias=False" in printed


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
