"""What single reshaped formats promise beyond the contract of all formats."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import LayerError
from rankscope.factorize import FORMATS, Format, Ranks, ReshapedFormat, WeightShape, Window

RESHAPED = [format for format in FORMATS.values() if isinstance(format, ReshapedFormat)]
FORMAT = pytest.mark.parametrize("format", RESHAPED, ids=lambda format: format.name)
# Alternating least squares may end elsewhere, for a ring and for outer products.
DIRECT = pytest.mark.parametrize(
    "format",
    [format for format in RESHAPED if format.name in ("r-tucker", "r-tensor-train")],
    ids=lambda format: format.name,
)
Sizes = tuple[int, int, list[int]]
KERNELS = st.lists(st.integers(1, 3), min_size=1, max_size=2)
OUT_SIZES, IN_SIZES = st.sampled_from((1, 3, 4, 6, 12)), st.sampled_from((1, 2, 5, 8, 12))
SIZES = st.tuples(OUT_SIZES, IN_SIZES, st.just([]) | KERNELS)


def _shape(sizes: Sizes) -> WeightShape:
    return WeightShape(sizes[0], sizes[1], tuple(sizes[2]))


def _draw_ranks(data: st.DataObject, format: Format, shape: WeightShape) -> Ranks:
    return tuple(data.draw(st.integers(1, min(3, limit))) for limit in format.max_ranks(shape))


def _weight(shape: WeightShape, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape.sizes, dtype=torch.float64, generator=generator)


def _error(format: Format, weight: Tensor, ranks: Ranks) -> float:
    rebuilt = format.to_dense(format.decompose(weight, ranks), WeightShape.of(weight))
    return float((rebuilt - weight).norm() / weight.norm())


@DIRECT
@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_errors_are_never_below_those_of_the_decomposition(
    format: Format, data: st.DataObject
) -> None:
    shape = _shape(data.draw(SIZES))
    ranks, weight = _draw_ranks(data, format, shape), _weight(shape)
    made = _error(format, weight, ranks)
    (estimated,) = format.errors(weight, [ranks])
    assert made <= estimated + 1e-7  # roots of differences of squares are right to half the digits
    if format.name == "r-tensor-train":
        assert made == pytest.approx(estimated, abs=1e-7)


@FORMAT
def test_channels_that_do_not_split_are_refused(format: Format) -> None:
    with pytest.raises(LayerError, match=r"\(37, 8\) is refused: its 37 outputs do not split in"):
        format.check(WeightShape(37, 8), (1,))


def test_operations_of_outer_products_are_those_of_the_specification() -> None:
    shape, window = WeightShape(64, 64, (3, 3)), Window((1, 1), (1, 1), (1, 1))
    # The specification: 20,800 multiply-adds a place at 5 % of the parameters, of 36,864 if dense.
    counted = FORMATS["r-cp"].flops(shape, (13,), window, (10, 10))
    assert counted == 2 * 100 * 20_800


def test_stages_of_resnet_32_have_the_ranks_of_the_corrected_rule() -> None:
    # Convolutions 16 -> 16 (ten), 32 -> 32 and 64 -> 64 (nine each), and between the stages; the
    # rule of the specification, floor(N / (sum of S_l T_l + 9)), never exceeds a tenth.
    format = FORMATS["r-cp"]
    for shape in (WeightShape(16, 16, (3, 3)), WeightShape(32, 16, (3, 3)), WeightShape(64, 64)):
        allowed = shape.num_parameters // 10
        unit = format.num_parameters(shape, (1,))
        assert format.largest_ranks(shape, allowed) == (math.floor(allowed / unit),)
