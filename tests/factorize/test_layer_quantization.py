import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import LayerError
from rankscope.factorize import quantize, quantized_bytes
from rankscope.factorize.cores import GROUP_SIZE

BITS = pytest.mark.parametrize("bits", [8, 4])
DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16]
)


@BITS
@DTYPES
@settings(deadline=None, max_examples=25)
@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    exponent=st.integers(-6, 3),
    seed=st.integers(0, 9),
)
def test_no_entry_moves_by_more_than_half_a_step(
    bits: int, dtype: torch.dtype, shape: list[int], exponent: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensor = (torch.randn(shape, generator=generator) * 10.0**exponent).to(dtype)
    quantized = quantize(tensor, bits)
    found = quantized.dequantize()
    assert found.shape == tensor.shape
    assert found.dtype == dtype
    rows = tensor.reshape(shape[0], -1).double()
    scales = quantized.scales.double()
    columns = rows.shape[1]
    wide = (
        scales[:, None].expand_as(rows)
        if bits == 8
        else scales.repeat_interleave(GROUP_SIZE, dim=1)[:, :columns]
    )
    # Beyond half a step there is the rounding of scale and product to the dtype.
    rounding = 2 * torch.finfo(dtype).eps * rows.abs() + torch.finfo(dtype).tiny
    moved = (found.reshape(shape[0], -1).double() - rows).abs()
    assert bool((moved <= wide / 2 + rounding).all())
    # And steps are no larger than they must be.
    levels = {8: 127, 4: 7}[bits]
    largest = rows.abs().amax(dim=1) / levels
    limit = largest * (1 + 2 * torch.finfo(dtype).eps) + torch.finfo(dtype).tiny
    assert bool((wide <= limit[:, None]).all())


@BITS
@settings(deadline=None, max_examples=25)
@given(shape=st.lists(st.integers(1, 70), min_size=1, max_size=2))
def test_bytes_are_counted_before_and_after_alike(bits: int, shape: list[int]) -> None:
    quantized = quantize(torch.ones(shape), bits)
    held = quantized.codes.numel() * 1 + quantized.scales.numel() * 4
    assert quantized.num_bytes == held == quantized_bytes(shape, bits, torch.float32)
    assert quantized.codes.element_size() == 1
    assert quantized.num_bytes * 8 >= math.prod(shape) * bits


@pytest.mark.parametrize(("bits", "num_bytes"), [(8, 64 * 132), (4, 64 * (64 + 16))])
def test_64_rows_of_128_take_codes_and_scales(bits: int, num_bytes: int) -> None:
    assert quantized_bytes((64, 128), bits, torch.float32) == num_bytes


@BITS
def test_multiples_of_the_scale_come_back_exactly(bits: int) -> None:
    levels = {8: 127, 4: 7}[bits]
    steps = torch.arange(-levels, levels + 1, dtype=torch.float64)
    tensor = torch.stack([steps * 0.5, steps.flip(0) * 2.0])
    # In 4 bits the 15 levels are one group; in 8 bits they are one row.
    torch.testing.assert_close(quantize(tensor, bits).dequantize(), tensor, rtol=0, atol=0)


def test_each_row_and_in_4_bits_each_group_has_its_own_scale() -> None:
    tensor = torch.ones(2, 2 * GROUP_SIZE)
    tensor[0] *= 1000
    tensor[1, GROUP_SIZE:] *= 0.001
    torch.testing.assert_close(quantize(tensor, 4).dequantize(), tensor)
    assert tuple(quantize(tensor, 8).scales.shape) == (2,)


@BITS
def test_zeros_stay_zero(bits: int) -> None:
    assert not quantize(torch.zeros(3, 5), bits).dequantize().any()


def test_numbers_too_small_for_a_scale_are_not_lost_beyond_half_a_step() -> None:
    tensor = torch.full((1, 3), 6e-8, dtype=torch.float16)
    quantized = quantize(tensor, 8)
    assert float(quantized.scales) == torch.finfo(torch.float16).tiny
    assert float((quantized.dequantize() - tensor).abs().max()) <= float(quantized.scales) / 2


def test_other_bits_are_refused() -> None:
    with pytest.raises(LayerError, match="bits must be 8 or 4, got 3"):
        quantize(torch.ones(2, 2), 3)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.ones(()), r"got shape \(\) and torch.float32"),
        (torch.ones(0, 2), r"got shape \(0, 2\)"),
        (torch.ones(2, dtype=torch.int64), "torch.int64"),
    ],
)
def test_only_rows_of_real_numbers_are_quantized(tensor: torch.Tensor, message: str) -> None:
    with pytest.raises(LayerError, match=message):
        quantize(tensor, 8)


def test_entries_that_are_not_finite_are_counted() -> None:
    tensor = torch.tensor([[1.0, math.nan], [math.inf, 2.0]])
    with pytest.raises(LayerError, match="2 of 4 entries are not finite"):
        quantize(tensor, 4)
