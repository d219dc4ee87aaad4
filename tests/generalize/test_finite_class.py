"""Quantized networks, and how many of them there are."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generalize.strategies import random_network
from torch import nn

from rankscope.errors import GeneralizationError
from rankscope.factorize import CPConv2d, CPLinear, FactorizedConv2d, FactorizedLinear
from rankscope.generalize import Quantization, QuantizedNetwork, quantize_network

LOG_SCALES = math.log(255)


@settings(deadline=None, max_examples=20)
@given(bits=st.integers(2, 9), seed=st.integers(0, 2**16))
def test_every_number_is_one_of_the_codes_times_the_scale(bits: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    tensor = torch.randn(20, generator=draw, dtype=torch.float64)
    quantization = Quantization(bits)
    scale = quantization.scale_of("any", tensor)
    exponent = 4 * math.log2(scale)
    assert exponent == pytest.approx(round(exponent))
    codes = quantization.codes(tensor, scale)
    assert torch.equal(codes, codes.round())
    assert float(codes.abs().max()) <= 2 ** (bits - 1) - 1
    inside = tensor.abs() <= scale * quantization.largest_code
    assert ((codes * scale - tensor).abs()[inside] <= scale / 2 + 1e-12).all()


def test_every_number_of_a_network_is_rounded_and_counted() -> None:
    model = random_network(0, has_normalization=True)
    quantized = quantize_network(model, Quantization(4))
    everything = (*quantized.model.parameters(), *quantized.model.buffers())
    held = [tensor for tensor in everything if tensor.is_floating_point()]
    assert quantized.num_parameters == sum(tensor.numel() for tensor in held)
    assert quantized.num_scales == len(held)
    assert int(quantized.histogram.sum()) == quantized.num_parameters
    assert all(len(torch.unique(tensor)) <= 15 for tensor in held)
    again = quantize_network(quantized.model, Quantization(4))
    for first, second in zip(held, again.model.parameters(), strict=False):
        torch.testing.assert_close(first, second)


def counted(histogram: list[int], *, bits: int, scales: int) -> QuantizedNetwork:
    return QuantizedNetwork(
        nn.Identity(), Quantization(bits), sum(histogram), scales, torch.tensor(histogram)
    )


def test_the_size_of_a_class_is_the_shorter_of_two_codes() -> None:
    even = counted([4, 4, 4], bits=2, scales=2)
    assert even.log_size == pytest.approx(12 * math.log(3) + math.log(2) + 2 * LOG_SCALES)
    sparse = counted([1, 98, 1], bits=2, scales=0)
    arrangements = 100 * 99  # places of the two that are not zero
    ways = math.comb(102, 2)  # how often each code could have been used
    assert sparse.log_size == pytest.approx(math.log(arrangements * ways * 2))


def test_scales_fixed_beforehand_are_not_counted() -> None:
    layer = nn.Linear(3, 2)
    scales = {"weight": 0.25, "bias": 0.5}
    quantized = quantize_network(layer, Quantization(3, scales))
    assert quantized.num_scales == 0
    assert isinstance(quantized.model, nn.Linear)
    assert torch.equal(quantized.model.weight * 4, (quantized.model.weight * 4).round())


def test_a_tensor_of_zeros_stays_zero() -> None:
    layer = nn.Linear(2, 2)
    nn.init.zeros_(layer.weight)
    quantized = quantize_network(layer, Quantization(8))
    assert isinstance(quantized.model, nn.Linear)
    assert not quantized.model.weight.any()


def test_cores_that_hold_more_than_the_weight_are_written_dense() -> None:
    model = nn.Sequential(
        CPConv2d(4, 4, 3, rank=16), CPConv2d(4, 4, 3, rank=2), CPLinear(4, 4, rank=4)
    )
    network = quantize_network(model, Quantization(8)).model
    assert isinstance(network, nn.Sequential)
    kinds = [type(part) for part in network]
    assert kinds == [nn.Conv2d, FactorizedConv2d, nn.Linear]
    alone = quantize_network(CPLinear(9, 9, rank=2), Quantization(8)).model
    assert type(alone) is FactorizedLinear


@pytest.mark.parametrize("bits", [1, 17])
def test_too_few_or_too_many_bits_are_refused(bits: int) -> None:
    with pytest.raises(GeneralizationError, match=rf"2\.\.16, got {bits}"):
        Quantization(bits)


def test_scales_that_are_missing_or_not_positive_are_refused() -> None:
    with pytest.raises(GeneralizationError, match=r"weight must be positive, got -1\.0"):
        Quantization(4, {"weight": -1.0})
    with pytest.raises(GeneralizationError, match="fixed for bias, only for weight"):
        quantize_network(nn.Linear(2, 2), Quantization(4, {"weight": 1.0}))


def test_integers_that_matter_are_refused() -> None:
    layer = CPLinear(9, 9, rank=2)
    layer.quantize(8)
    with pytest.raises(GeneralizationError, match=r"cores\.right_codes holds 18 integers"):
        quantize_network(layer, Quantization(4))
