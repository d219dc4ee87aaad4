"""What every format promises, on weights of every kind that it accepts: one suite over all of them.

Above all: the diagrams of a format are its weight, its layer and its look-up, and what they cost is
what the format counts.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from rankscope.diagrams import IN_ORDER, to_module
from rankscope.diagrams.cost import cost
from rankscope.errors import LayerError
from rankscope.factorize import (
    DENSE,
    FORMATS,
    Format,
    Ranks,
    ReshapedFormat,
    WeightShape,
    Window,
    random_cores,
)
from rankscope.factorize.formats.format import BACKWARD

ALL = [*FORMATS.values(), DENSE]
FORMAT = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda format: format.name)
FORMAT_OR_DENSE = pytest.mark.parametrize("format", ALL, ids=lambda format: format.name)
OF_MATRICES = [format for format in ALL if format.refusal(WeightShape(8, 6)) is None]
MATRIX_FORMAT = pytest.mark.parametrize("format", OF_MATRICES, ids=lambda format: format.name)

# Shapes are made inside the tests: the type checker draws random numbers of its own.
KERNELS = st.lists(st.integers(1, 3), min_size=1, max_size=2)
OUT_SIZES, IN_SIZES = st.sampled_from((1, 3, 4, 6, 12)), st.sampled_from((1, 2, 5, 8, 12))
MODES = st.sampled_from(("zeros", "circular", "reflect", "replicate"))


def _shape(data: st.DataObject, format: Format) -> WeightShape:
    takes_matrices = format.refusal(WeightShape(8, 6)) is None
    large = KERNELS.filter(lambda kernel: max(kernel) > 1)
    kernels: st.SearchStrategy[list[int]] = st.just([]) | KERNELS if takes_matrices else large
    out_size, in_size, kernel = data.draw(st.tuples(OUT_SIZES, IN_SIZES, kernels))
    return WeightShape(out_size, in_size, tuple(kernel))


def _ranks(data: st.DataObject, format: Format, shape: WeightShape) -> Ranks:
    return tuple(data.draw(st.integers(1, min(4, limit))) for limit in format.max_ranks(shape))


def _window(data: st.DataObject, order: int) -> Window:
    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(order))

    if order == 0:
        return Window()
    after = each(0, 2) if data.draw(st.booleans()) else None
    groups, mode = data.draw(st.integers(1, 3)), data.draw(MODES)
    return Window(each(1, 3), each(0, 2), each(1, 2), groups, after, mode)


def _weight(shape: WeightShape, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape.sizes, dtype=torch.float64, generator=generator)


def _error(format: Format, weight: Tensor, ranks: Ranks) -> float:
    rebuilt = format.to_dense(format.decompose(weight, ranks), WeightShape.of(weight))
    return float((rebuilt - weight).norm() / weight.norm())


def _rebuilt(format: Format, cores: dict[str, Tensor], shape: WeightShape, groups: int) -> Tensor:
    parts = {name: core.chunk(groups) for name, core in cores.items()}
    return torch.cat(
        [
            format.to_dense({name: part[group] for name, part in parts.items()}, shape)
            for group in range(groups)
        ]
    )


def _convolved(inputs: Tensor, weight: Tensor, window: Window) -> Tensor:
    """As PyTorch's own layers do it: pad first, in whichever mode."""
    amounts = [size for margin in reversed(window.margins) for size in margin]
    mode = "constant" if window.padding_mode == "zeros" else window.padding_mode
    padded = functional.pad(inputs, amounts, mode=mode)
    convolution = functional.conv2d if weight.ndim == 4 else functional.conv1d
    return convolution(padded, weight, None, window.stride, 0, window.dilation, window.groups)


@FORMAT_OR_DENSE
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_the_chain_is_the_layer_and_costs_what_the_format_counts(
    format: Format, data: st.DataObject
) -> None:
    shape = _shape(data, format)
    window, ranks = _window(data, len(shape.kernel)), _ranks(data, format, shape)
    sizes, batch = (8, 7)[: len(shape.kernel)], data.draw(st.integers(1, 3))
    cores = random_cores(format, shape, ranks, groups=window.groups, dtype=torch.float64)
    weight = _rebuilt(format, cores, shape, window.groups)
    inputs = torch.randn(batch, window.groups * shape.in_size, *sizes, dtype=torch.float64)
    wanted = _convolved(inputs, weight, window) if sizes else functional.linear(inputs, weight)

    with FlopCounterMode(display=False) as counter:
        outputs = format.apply(inputs, cores, shape, window)
    torch.testing.assert_close(outputs, wanted)

    chain = format.chain(shape, ranks, window, sizes, batch)
    given = inputs.reshape([chain.sizes[leg] or 0 for leg in chain.nodes[0].indices])
    drawn = to_module(chain, cores, method=IN_ORDER)(given)
    torch.testing.assert_close(drawn.reshape(wanted.shape), wanted)

    counted = cost(chain, IN_ORDER)
    assert counted.flops == format.flops(shape, ranks, window, sizes, batch)
    assert counted.parameters == window.groups * format.num_parameters(shape, ranks)
    between = batch * format.intermediates(shape, ranks, window, sizes)
    assert counted.largest_intermediate <= between + wanted.numel()
    assert counted.peak_memory <= inputs.numel() + counted.parameters + between + wanted.numel()
    # PyTorch's counter sees every product but those by numbers of size one.
    assert counter.get_total_flops() <= counted.flops
    if not isinstance(format, ReshapedFormat) or min(format.sizes(shape, ranks).values()) > 1:
        assert counter.get_total_flops() == counted.flops


@MATRIX_FORMAT
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_rows_are_those_of_the_matrix_and_cost_what_the_format_counts(
    format: Format, data: st.DataObject
) -> None:
    shape = WeightShape(data.draw(OUT_SIZES), data.draw(IN_SIZES))
    ranks, count = _ranks(data, format, shape), data.draw(st.integers(1, 4))
    cores = random_cores(format, shape, ranks, dtype=torch.float64)
    numbers = torch.randint(shape.out_size, (count,))
    with FlopCounterMode(display=False) as counter:
        rows = format.rows(cores, shape, numbers)
    torch.testing.assert_close(rows, format.to_dense(cores, shape)[numbers])
    chain = format.row_chain(shape, ranks, count)
    digits = format.digits(shape, numbers) if isinstance(format, ReshapedFormat) else (numbers,)
    drawn = to_module(chain, cores, method=BACKWARD)
    names = ["x"] if len(digits) == 1 else [f"x_{place}" for place in range(1, len(digits) + 1)]
    torch.testing.assert_close(
        drawn(**dict(zip(names, digits, strict=True))).reshape(rows.shape), rows
    )
    counted = cost(chain, BACKWARD)
    assert counted.flops == format.row_flops(shape, ranks, count)
    assert counted.parameters == format.num_parameters(shape, ranks)
    assert counter.get_total_flops() <= counted.flops


@MATRIX_FORMAT
def test_no_rows_are_no_outputs(format: Format) -> None:
    shape = WeightShape(12, 8)
    cores = random_cores(format, shape, tuple(min(2, r) for r in format.max_ranks(shape)))
    assert format.apply(torch.zeros(2, 0, 8), cores, shape, Window()).shape == (2, 0, 12)


@FORMAT_OR_DENSE
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_the_diagram_is_the_weight_and_counts_its_numbers(
    format: Format, data: st.DataObject
) -> None:
    shape = _shape(data, format)
    ranks = _ranks(data, format, shape)
    cores = random_cores(format, shape, ranks, dtype=torch.float64)
    diagram = format.diagram(shape, ranks)
    dense = format.to_dense(cores, shape)
    assert tuple(dense.shape) == shape.sizes
    torch.testing.assert_close(to_module(diagram, cores)().reshape(shape.sizes), dense)
    shapes = {name: tuple(core.shape) for name, core in cores.items()}
    assert shapes == format.core_shapes(shape, ranks)
    count = sum(core.numel() for core in cores.values())
    assert format.num_parameters(shape, ranks) == cost(diagram).parameters == count


@FORMAT
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_at_full_ranks_every_weight_is_written_exactly(format: Format, data: st.DataObject) -> None:
    shape = _shape(data, format)
    assert _error(format, _weight(shape), format.full_ranks(shape)) < 1e-7


@FORMAT
@settings(deadline=None, max_examples=40)
@given(data=st.data(), num_parameters=st.integers(1, 200))
def test_the_largest_ranks_fit_and_none_could_be_one_larger(
    format: Format, data: st.DataObject, num_parameters: int
) -> None:
    shape = _shape(data, format)
    ranks = format.largest_ranks(shape, num_parameters)
    limits = format.max_ranks(shape)
    if ranks is None:
        assert format.num_parameters(shape, (1,) * len(limits)) > num_parameters
        return
    assert format.num_parameters(shape, ranks) <= num_parameters
    for place, (rank, limit) in enumerate(zip(ranks, limits, strict=True)):
        larger = (*ranks[:place], rank + 1, *ranks[place + 1 :])
        assert rank <= limit
        assert (
            rank == limit
            or format.num_parameters(shape, larger) > num_parameters
            or not format.is_useful(shape, larger)
        )


@FORMAT
@pytest.mark.parametrize(
    ("shape", "counts"),
    [
        (WeightShape(6, 5, (3, 3)), (40, 70, 100, 150)),
        (WeightShape(6, 4, (3,)), (35, 45)),
        (WeightShape(8, 9), (35, 45)),
    ],
)
def test_errors_fall_along_the_ladder_and_end_at_zero(
    format: Format, shape: WeightShape, counts: tuple[int, ...]
) -> None:
    if format.refusal(shape) is not None:
        return
    ladder = [ranks for count in counts if (ranks := format.largest_ranks(shape, count))]
    errors = format.errors(_weight(shape), [*ladder, format.full_ranks(shape)])
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-7
    assert errors[0] < 1


# Alternating least squares may end elsewhere, for a ring and for outer products of pairs.
@pytest.mark.parametrize(
    "name", ["svd", "cp", "tucker", "tensor-train", "r-tucker", "r-tensor-train"]
)
@pytest.mark.parametrize("shape", [WeightShape(7, 8, (3, 2)), WeightShape(12, 8, (3, 2))])
def test_a_planted_weight_is_found_at_its_own_ranks(name: str, shape: WeightShape) -> None:
    torch.manual_seed(0)
    format = FORMATS[name]
    ranks = tuple(min(2, limit) for limit in format.max_ranks(shape))
    planted = format.to_dense(random_cores(format, shape, ranks, dtype=torch.float64), shape)
    assert _error(format, planted, ranks) < 1e-5


@FORMAT
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
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
def test_kernels_with_three_positions_are_refused(format: Format) -> None:
    with pytest.raises(LayerError, match=r"shape \(4, 5, 2, 2, 2\) is refused: its kernel has 3"):
        format.check(WeightShape(4, 5, (2, 2, 2)), (1,))


@FORMAT
def test_ranks_that_do_not_fit_are_refused(format: Format) -> None:
    shape = WeightShape(8, 6, (3, 3))
    count = len(format.max_ranks(shape))
    with pytest.raises(LayerError, match=rf"needs {count} rank\(s\), .*, got \(0,"):
        format.decompose(_weight(shape), (0,) * count)
    with pytest.raises(LayerError, match=rf"needs {count} rank\(s\), .*, got \(1, 1, 1, 1, 1\)"):
        format.core_shapes(shape, (1, 1, 1, 1, 1))


def test_counts_are_those_of_the_specification() -> None:
    shape, window = WeightShape(64, 32, (3, 3)), Window((1, 1), (1, 1), (1, 1))
    places = math.prod((16, 16))
    # 32 = 8 x 4 = 4 x 4 x 2 inputs, 64 = 8 x 8 = 4 x 4 x 4 outputs.
    wanted = {
        "svd": ((5,), 5 * 3 * (32 + 64)),
        "cp": ((5,), 5 * (32 + 64 + 9)),
        "tucker": ((5, 7), 32 * 5 + 9 * 5 * 7 + 7 * 64),
        "tensor-train": ((5, 6, 7), 32 * 5 + 3 * 5 * 6 + 3 * 6 * 7 + 7 * 64),
        "tensor-ring": ((5, 5, 5, 5), 25 * (32 + 3 + 3 + 64)),
        "r-cp": ((5,), 5 * (8 * 8 + 4 * 8 + 9)),
        "r-tucker": ((2, 3, 4, 5), 8 * 2 + 4 * 3 + 8 * 4 + 8 * 5 + 9 * 2 * 3 * 4 * 5),
        "r-tensor-train": ((5, 6, 7), 16 * 5 + 5 * 16 * 6 + 6 * 8 * 7 + 7 * 9),
        "r-tensor-ring": ((5, 5, 5, 5), 25 * (16 + 16 + 8 + 9)),
    }
    for name, (ranks, count) in wanted.items():
        format = FORMATS[name]
        assert format.num_parameters(shape, ranks) == count
        if name in ("svd", "cp", "tucker", "tensor-train"):  # every number is used once a place
            assert format.flops(shape, ranks, window, (16, 16)) == 2 * count * places


def test_numbers_between_the_cores() -> None:
    shape, window = WeightShape(7, 8, (3, 2)), Window((2, 1), (1, 0), (1, 1), 2)
    # Of one sample at 6 x 5 places: 3 x 5 after the height, 3 x 4 after the width.
    wanted = {
        "svd": ((2,), 2 * 15 * 2),
        "cp": ((2,), 2 * (30 * 2 + 12 * 2)),
        "tucker": ((2, 3), 2 * (30 * 2 + 12 * 3)),
        "tensor-train": ((2, 3, 4), 2 * (30 * 2 + 15 * 3 + 12 * 4)),
        "tensor-ring": ((2, 3, 4, 5), 2 * 5 * (30 * 2 + 15 * 3 + 12 * 4)),
        # Inputs 4 x 2 and outputs 7 x 1 in two groups; places change with the kernel.
        "r-cp": ((3,), 2 * 30 * (3 * 7 * 2 + 3 * 7 * 1)),
        "r-tucker": ((1, 2, 3, 1), 2 * (30 * (1 * 2 + 1 * 2) + 12 * (3 * 1 + 7 * 1))),
    }
    for name, (ranks, count) in wanted.items():
        assert FORMATS[name].intermediates(shape, ranks, window, (6, 5)) == count, name
