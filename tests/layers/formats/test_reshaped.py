"""What all reshaped formats promise, on weights of every kind that they accept."""

import math

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from rankscope.diagrams.einsum import to_einsum
from rankscope.errors import LayerError
from rankscope.layers.cores import random_cores
from rankscope.layers.formats.catalogue import FORMATS
from rankscope.layers.formats.format import Format, Ranks, WeightShape, Window
from rankscope.layers.formats.reshaped import ReshapedFormat

RESHAPED = [format for format in FORMATS.values() if isinstance(format, ReshapedFormat)]
FORMAT = pytest.mark.parametrize("format", RESHAPED, ids=lambda format: format.name)
# Alternating least squares may end elsewhere, for a ring and for outer products.
DIRECT = pytest.mark.parametrize(
    "format",
    [format for format in RESHAPED if format.name in ("r-tucker", "r-tensor-train")],
    ids=lambda format: format.name,
)
# Shapes are made inside the tests: the type checker draws random numbers of its own.
Sizes = tuple[int, int, list[int]]
KERNELS = st.lists(st.integers(1, 3), min_size=1, max_size=2)
OUT_SIZES, IN_SIZES = st.sampled_from((1, 3, 4, 6, 12)), st.sampled_from((1, 2, 5, 8, 12))
SIZES = st.tuples(OUT_SIZES, IN_SIZES, st.just([]) | KERNELS)


def _shape(sizes: Sizes) -> WeightShape:
    return WeightShape(sizes[0], sizes[1], tuple(sizes[2]))


def _draw_ranks(data: st.DataObject, format: Format, shape: WeightShape) -> Ranks:
    return tuple(data.draw(st.integers(1, min(3, limit))) for limit in format.max_ranks(shape))


def _draw_window(data: st.DataObject, order: int) -> Window:
    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(order))

    return Window(each(1, 3), each(0, 2), each(1, 2), data.draw(st.integers(1, 3)))


def _weight(shape: WeightShape, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape.sizes, dtype=torch.float64, generator=generator)


def _error(format: Format, weight: Tensor, ranks: Ranks) -> float:
    rebuilt = format.to_dense(format.decompose(weight, ranks), WeightShape.of(weight))
    return float((rebuilt - weight).norm() / weight.norm())


@FORMAT
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_the_chain_is_the_convolution_with_the_rebuilt_kernel(
    format: Format, data: st.DataObject
) -> None:
    shape = _shape(data.draw(st.tuples(OUT_SIZES, IN_SIZES, KERNELS)))
    window = _draw_window(data, len(shape.kernel))
    ranks = _draw_ranks(data, format, shape)
    cores = random_cores(format, shape, ranks, groups=window.groups, dtype=torch.float64)
    parts = {name: core.chunk(window.groups) for name, core in cores.items()}
    groups = range(window.groups)
    kernel = torch.cat(
        [format.to_dense({name: part[g] for name, part in parts.items()}, shape) for g in groups]
    )
    inputs = torch.randn(
        2, window.groups * shape.in_size, *(8, 7)[: len(shape.kernel)], dtype=torch.float64
    )
    convolution = functional.conv2d if len(shape.kernel) == 2 else functional.conv1d
    wanted = convolution(
        inputs, kernel, None, window.stride, window.padding, window.dilation, window.groups
    )
    with FlopCounterMode(display=False) as counter:
        outputs = format.apply(inputs, cores, shape, window)
    torch.testing.assert_close(outputs, wanted)
    # The counter counts a multiplication and an addition, and both samples. Where nothing is
    # summed, einsum multiplies without it seeing.
    counted = format.multiplications(shape, ranks, window, inputs.shape[2:])
    assert counter.get_total_flops() <= 4 * counted
    if min(format.sizes(shape, ranks).values()) > 1:  # type: ignore[attr-defined]
        assert counter.get_total_flops() == 4 * counted


@FORMAT
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_of_a_matrix_the_chain_is_the_product_and_rows_are_its_rows(
    format: Format, data: st.DataObject
) -> None:
    shape = WeightShape(12, 8)
    ranks = _draw_ranks(data, format, shape)
    cores = random_cores(format, shape, ranks, dtype=torch.float64)
    matrix = format.to_dense(cores, shape)
    inputs = torch.randn(2, 0 if data.draw(st.booleans()) else 3, 8, dtype=torch.float64)
    torch.testing.assert_close(format.apply(inputs, cores, shape, Window()), inputs @ matrix.T)
    numbers = torch.tensor([[11, 0, 5], [7, 7, 2]])
    torch.testing.assert_close(format.rows(cores, shape, numbers), matrix[numbers])


@FORMAT
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_the_diagram_is_the_weight_with_its_channels_cut(
    format: Format, data: st.DataObject
) -> None:
    shape = _shape(data.draw(SIZES))
    ranks = _draw_ranks(data, format, shape)
    cores = random_cores(format, shape, ranks, dtype=torch.float64)
    diagram = format.diagram(shape, ranks)
    arrays = [
        cores[node.name].reshape([diagram.sizes[leg] or 0 for leg in node.indices]).numpy()
        for node in diagram.nodes
    ]
    contracted = torch.from_numpy(numpy.einsum(to_einsum(diagram), *arrays))
    torch.testing.assert_close(contracted.reshape(shape.sizes), format.to_dense(cores, shape))
    assert format.num_parameters(shape, ranks) == sum(core.numel() for core in cores.values())


@FORMAT
@settings(deadline=None, max_examples=10)
@given(sizes=SIZES)
def test_at_full_ranks_every_weight_is_written_exactly(format: Format, sizes: Sizes) -> None:
    shape = _shape(sizes)
    assert _error(format, _weight(shape), format.full_ranks(shape)) < 1e-10


@FORMAT
@settings(deadline=None, max_examples=40)
@given(sizes=SIZES, num_parameters=st.integers(1, 200))
def test_the_largest_ranks_fit_and_none_could_be_one_larger(
    format: Format, sizes: Sizes, num_parameters: int
) -> None:
    shape = _shape(sizes)
    ranks = format.largest_ranks(shape, num_parameters)
    limits = format.max_ranks(shape)
    if ranks is None:
        assert format.num_parameters(shape, (1,) * len(limits)) > num_parameters
        return
    assert format.num_parameters(shape, ranks) <= num_parameters
    for place, (rank, limit) in enumerate(zip(ranks, limits, strict=True)):
        larger = (*ranks[:place], rank + 1, *ranks[place + 1 :])
        assert rank <= limit
        assert rank == limit or format.num_parameters(shape, larger) > num_parameters


@FORMAT
@pytest.mark.parametrize("shape", [WeightShape(6, 4, (3,)), WeightShape(8, 9)])
def test_errors_fall_along_the_ladder_and_end_at_zero(format: Format, shape: WeightShape) -> None:
    counts = (35, 45)
    ladder = [ranks for count in counts if (ranks := format.largest_ranks(shape, count))]
    errors = format.errors(_weight(shape), [*ladder, format.full_ranks(shape)])
    assert len(errors) == len(counts) + 1
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-7
    assert errors[0] < 1


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


@DIRECT
@pytest.mark.parametrize("shape", [WeightShape(12, 8, (3, 2)), WeightShape(12, 8)])
def test_a_planted_weight_is_found_at_its_own_ranks(format: Format, shape: WeightShape) -> None:
    torch.manual_seed(0)
    ranks = (2,) * len(format.max_ranks(shape))
    planted = format.to_dense(random_cores(format, shape, ranks, dtype=torch.float64), shape)
    assert _error(format, planted, ranks) < 1e-10


@FORMAT
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cores_have_the_dtype_of_the_weight_and_the_same_norm(
    format: Format, dtype: torch.dtype
) -> None:
    weight = _weight(WeightShape(4, 6, (2, 3))).to(dtype)
    ranks = (2,) * len(format.max_ranks(WeightShape.of(weight)))
    cores = format.decompose(weight, ranks)
    assert {core.dtype for core in cores.values()} == {dtype}
    assert all(core.is_contiguous() for core in cores.values())
    norms = torch.stack([core.double().norm() for core in cores.values()])
    torch.testing.assert_close(norms, norms.mean().expand_as(norms), rtol=1e-2, atol=0)


@FORMAT
def test_a_weight_of_zeros_stays_one(format: Format) -> None:
    shape = WeightShape(4, 6, (3,))
    cores = format.decompose(torch.zeros(shape.sizes), (1,) * len(format.max_ranks(shape)))
    assert not any(core.any() for core in cores.values())


@FORMAT
def test_channels_that_do_not_split_are_refused(format: Format) -> None:
    with pytest.raises(LayerError, match=r"\(37, 8\) is refused: its 37 outputs do not split in"):
        format.check(WeightShape(37, 8), (1,))
    with pytest.raises(LayerError, match="its kernel has 3 positions, and at most two"):
        format.check(WeightShape(4, 4, (2, 2, 2)), (1,))


@FORMAT
def test_ranks_that_do_not_fit_are_refused(format: Format) -> None:
    shape = WeightShape(8, 6, (3, 3))
    count = len(format.max_ranks(shape))
    with pytest.raises(LayerError, match=rf"needs {count} rank\(s\), .*, got \(0,"):
        format.decompose(_weight(shape), (0,) * count)
    with pytest.raises(LayerError, match=rf"needs {count} rank\(s\), .*, got \(1, 1, 1, 1, 1\)"):
        format.core_shapes(shape, (1, 1, 1, 1, 1))


def test_counts_are_those_of_the_specification() -> None:
    # 32 = 8 x 4 = 4 x 4 x 2 inputs, 64 = 8 x 8 = 4 x 4 x 4 outputs.
    shape = WeightShape(64, 32, (3, 3))
    wanted = {
        "r-cp": ((5,), 5 * (8 * 8 + 4 * 8 + 9)),
        "r-tucker": ((2, 3, 4, 5), 8 * 2 + 4 * 3 + 8 * 4 + 8 * 5 + 9 * 2 * 3 * 4 * 5),
        "r-tensor-train": ((5, 6, 7), 16 * 5 + 5 * 16 * 6 + 6 * 8 * 7 + 7 * 9),
        "r-tensor-ring": ((5, 5, 5, 5), 25 * (16 + 16 + 8 + 9)),
    }
    for format in RESHAPED:
        ranks, count = wanted[format.name]
        assert format.num_parameters(shape, ranks) == count


def test_multiplications_of_outer_products_are_those_of_the_specification() -> None:
    shape, window = WeightShape(64, 64, (3, 3)), Window((1, 1), (1, 1), (1, 1))
    # The specification: 20,800 per place at 5 % of the parameters, of 36,864 if dense.
    counted = FORMATS["r-cp"].multiplications(shape, (13,), window, (10, 10))
    assert counted == 100 * 20_800


def test_activations_are_the_numbers_between_the_cores() -> None:
    shape, window = WeightShape(6, 4, (3, 3)), Window((2, 2), (1, 1), (1, 1), 2)
    # Inputs 2 x 2 and outputs 3 x 2 in two groups; 6 x 6 places before the kernel, 3 x 3 after.
    wanted = {
        "r-cp": ((3,), 2 * 36 * (3 * 3 * 2 + 3 * 3 * 2)),
        "r-tucker": ((1, 2, 3, 2), 2 * (36 * (1 * 2 + 1 * 2) + 9 * (3 * 2 + 3 * 2))),
    }
    for name, (ranks, count) in wanted.items():
        assert FORMATS[name].activations(shape, ranks, window, (6, 6)) == count


def test_stages_of_resnet_32_have_the_ranks_of_the_corrected_rule() -> None:
    # Convolutions 16 -> 16 (ten), 32 -> 32 and 64 -> 64 (nine each), and between the stages; the
    # rule of the specification, floor(N / (sum of S_l T_l + 9)), never exceeds a tenth.
    format = FORMATS["r-cp"]
    for shape in (WeightShape(16, 16, (3, 3)), WeightShape(32, 16, (3, 3)), WeightShape(64, 64)):
        allowed = shape.num_parameters // 10
        unit = format.num_parameters(shape, (1,))
        assert format.largest_ranks(shape, allowed) == (math.floor(allowed / unit),)
