"""What all plain formats promise, on weights of every kind that they accept."""

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
from rankscope.layers.formats.cp_format import LARGEST_COMPONENT
from rankscope.layers.formats.format import Format, Ranks, WeightShape, Window
from rankscope.layers.formats.plain import PlainFormat

PLAIN = [format for format in FORMATS.values() if isinstance(format, PlainFormat)]
FORMAT = pytest.mark.parametrize("format", PLAIN, ids=lambda format: format.name)
NOT_SVD = [format for format in PLAIN if format.name != "svd"]


# Plain numbers: objects of ours are checked by beartype, which uses `random`.
SIZES = st.tuples(
    st.integers(1, 6),
    st.integers(1, 6),
    st.lists(st.integers(1, 3), min_size=1, max_size=2).filter(lambda kernel: max(kernel) > 1),
)


def _shape(sizes: tuple[int, int, list[int]]) -> WeightShape:
    return WeightShape(sizes[0], sizes[1], tuple(sizes[2]))


def _draw_window(data: st.DataObject, order: int) -> Window:
    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(order))

    return Window(each(1, 3), each(0, 2), each(1, 2), data.draw(st.integers(1, 3)))


def _draw_ranks(data: st.DataObject, format: Format, shape: WeightShape) -> Ranks:
    limits = format.max_ranks(shape)
    return tuple(data.draw(st.integers(1, min(4, limit))) for limit in limits)


def _weight(shape: WeightShape, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape.sizes, dtype=torch.float64, generator=generator)


def _error(format: Format, weight: Tensor, ranks: Ranks) -> float:
    shape = WeightShape.of(weight)
    rebuilt = format.to_dense(format.decompose(weight, ranks), shape)
    return float((rebuilt - weight).norm() / weight.norm())


@FORMAT
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_the_chain_is_the_convolution_with_the_rebuilt_kernel(
    format: Format, data: st.DataObject
) -> None:
    shape = _shape(data.draw(SIZES))
    window = _draw_window(data, len(shape.kernel))
    ranks = _draw_ranks(data, format, shape)
    cores = random_cores(format, shape, ranks, groups=window.groups, dtype=torch.float64)
    parts = {name: core.chunk(window.groups) for name, core in cores.items()}
    kernel = torch.cat(
        [
            format.to_dense({name: part[group] for name, part in parts.items()}, shape)
            for group in range(window.groups)
        ]
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
    # The counter counts a multiplication and an addition, and both samples.
    counted = format.multiplications(shape, ranks, window, inputs.shape[2:])
    assert counter.get_total_flops() == 4 * counted


@FORMAT
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_the_diagram_is_the_weight_and_counts_its_numbers(
    format: Format, data: st.DataObject
) -> None:
    shape = _shape(data.draw(SIZES))
    ranks = _draw_ranks(data, format, shape)
    cores = random_cores(format, shape, ranks, dtype=torch.float64)
    diagram = format.diagram(shape, ranks)
    contracted = numpy.einsum(
        to_einsum(diagram), *(cores[node.name].numpy() for node in diagram.nodes)
    )
    dense = format.to_dense(cores, shape)
    assert tuple(dense.shape) == shape.sizes
    torch.testing.assert_close(torch.from_numpy(contracted), dense)
    assert {name: tuple(core.shape) for name, core in cores.items()} == format.core_shapes(
        shape, ranks
    )
    assert format.num_parameters(shape, ranks) == sum(core.numel() for core in cores.values())


@FORMAT
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_at_full_ranks_every_weight_is_written_exactly(format: Format, data: st.DataObject) -> None:
    weight = _weight(_shape(data.draw(SIZES)))
    assert _error(format, weight, format.full_ranks(WeightShape.of(weight))) < 1e-7


@FORMAT
@settings(deadline=None, max_examples=50)
@given(sizes=SIZES, num_parameters=st.integers(1, 200))
def test_the_largest_ranks_fit_and_none_could_be_one_larger(
    format: PlainFormat, sizes: tuple[int, int, list[int]], num_parameters: int
) -> None:
    shape = _shape(sizes)
    ranks = format.largest_ranks(shape, num_parameters)
    limits = format.max_ranks(shape)
    if ranks is None:
        assert format.num_parameters(shape, (1,) * len(limits)) > num_parameters
        return
    assert format.num_parameters(shape, ranks) <= num_parameters
    for place, (rank, limit) in enumerate(zip(ranks, limits, strict=True)):
        assert rank <= limit
        larger = (*ranks[:place], rank + 1, *ranks[place + 1 :])
        assert (
            rank == limit
            or format.num_parameters(shape, larger) > num_parameters
            or not format.is_useful(shape, larger)
        )


@FORMAT
def test_errors_fall_along_the_ladder_and_end_at_zero(format: Format) -> None:
    shape = WeightShape(6, 5, (3, 3))
    ladder = [format.largest_ranks(shape, count) for count in (40, 70, 100, 150)] + [
        format.full_ranks(shape)
    ]
    errors = format.errors(_weight(shape), [ranks for ranks in ladder if ranks is not None])
    assert len(errors) == 5
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-7
    assert errors[0] < 1


# Alternating least squares for a ring may end elsewhere: see its own tests.
@pytest.mark.parametrize(
    "format", [format for format in PLAIN if format.name != "tensor-ring"], ids=lambda f: f.name
)
def test_a_planted_weight_is_found_at_its_own_ranks(format: Format) -> None:
    torch.manual_seed(0)
    shape = WeightShape(7, 8, (3, 2))
    ranks = (2,) * len(format.max_ranks(shape))
    planted = format.to_dense(random_cores(format, shape, ranks, dtype=torch.float64), shape)
    assert _error(format, planted, ranks) < 1e-5


@FORMAT
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_cores_have_the_dtype_of_the_weight(format: Format, dtype: torch.dtype) -> None:
    weight = _weight(WeightShape(4, 3, (2, 3))).to(dtype)
    cores = format.decompose(weight, (1,) * len(format.max_ranks(WeightShape.of(weight))))
    assert {core.dtype for core in cores.values()} == {dtype}
    assert all(core.is_contiguous() for core in cores.values())


@FORMAT
def test_the_input_core_alone_carries_the_inputs(format: Format) -> None:
    shape = WeightShape(5, 7, (3, 3))
    assert format.input_core is not None
    name, position = format.input_core
    ranks = (2,) * len(format.max_ranks(shape))
    cores = random_cores(format, shape, ranks, dtype=torch.float64)
    change = torch.randn(7, 7, dtype=torch.float64)
    changed = dict(cores)
    changed[name] = torch.tensordot(cores[name], change, ([position], [0])).movedim(-1, position)
    wanted = torch.einsum("tshw,sz->tzhw", format.to_dense(cores, shape), change)
    torch.testing.assert_close(format.to_dense(changed, shape), wanted)


@FORMAT
def test_the_output_core_alone_carries_the_outputs(format: Format) -> None:
    shape = WeightShape(5, 7, (3, 3))
    ranks = (2,) * len(format.max_ranks(shape))
    cores = random_cores(format, shape, ranks, dtype=torch.float64)
    assert format.output_core is not None
    change = torch.randn(5, dtype=torch.float64)
    changed = dict(cores)
    changed[format.output_core] = torch.einsum("t...,t->t...", cores[format.output_core], change)
    wanted = torch.einsum("tshw,t->tshw", format.to_dense(cores, shape), change)
    torch.testing.assert_close(format.to_dense(changed, shape), wanted)


@pytest.mark.parametrize("format", NOT_SVD, ids=lambda format: format.name)
@pytest.mark.parametrize("kernel", [(), (1,), (1, 1)])
def test_without_a_kernel_the_others_are_svd_in_disguise(
    format: Format, kernel: tuple[int, ...]
) -> None:
    refusal = format.refusal(WeightShape(4, 5, kernel))
    assert refusal == f"without a kernel, {format.name} is svd in disguise; use svd."


@FORMAT
def test_kernels_with_three_positions_are_refused(format: Format) -> None:
    with pytest.raises(LayerError, match=r"shape \(4, 5, 2, 2, 2\) is refused: its kernel has 3"):
        format.check(WeightShape(4, 5, (2, 2, 2)), (1,))


@FORMAT
def test_channels_last_inputs_give_channels_last_outputs(format: Format) -> None:
    shape, window = WeightShape(8, 4, (3, 3)), Window((1, 1), (1, 1), (1, 1))
    cores = random_cores(format, shape, (2,) * len(format.max_ranks(shape)))
    inputs = torch.randn(2, 4, 6, 5).contiguous(memory_format=torch.channels_last)
    outputs = format.apply(inputs, cores, shape, window)
    assert outputs.is_contiguous(memory_format=torch.channels_last)


@FORMAT
def test_activations_are_the_numbers_between_the_cores(format: Format) -> None:
    shape, window = WeightShape(7, 8, (3, 2)), Window((2, 1), (1, 0), (1, 1), 2)
    ranks = tuple(range(2, 2 + len(format.max_ranks(shape))))
    # Of one sample at 6 x 5 places: 3 x 5 after the height, 3 x 4 after the width.
    wanted = {
        "svd": 2 * 15 * 2,
        "cp": 2 * (30 * 2 + 12 * 2),
        "tucker": 2 * (30 * 2 + 12 * 3),
        "tensor-train": 2 * (30 * 2 + 15 * 3 + 12 * 4),
        "tensor-ring": 2 * 5 * (30 * 2 + 15 * 3 + 12 * 4),
    }
    assert format.activations(shape, ranks, window, (6, 5)) == wanted[format.name]


def test_a_strided_kernel_of_size_one_reads_only_what_it_needs() -> None:
    shape, window = WeightShape(8, 6, (1, 1)), Window((2, 2), (0, 0), (1, 1))
    format = FORMATS["svd"]
    assert format.multiplications(shape, (2,), window, (9, 9)) == 25 * (6 * 2 + 2 * 8)


def test_counts_are_those_of_the_specification() -> None:
    shape, window = WeightShape(64, 32, (3, 3)), Window((1, 1), (1, 1), (1, 1))
    places = math.prod((16, 16))
    wanted = {
        "svd": ((5,), 5 * 3 * (32 + 64)),
        "cp": ((5,), 5 * (32 + 64 + 9)),
        "tucker": ((5, 7), 32 * 5 + 9 * 5 * 7 + 7 * 64),
        "tensor-train": ((5, 6, 7), 32 * 5 + 3 * 5 * 6 + 3 * 6 * 7 + 7 * 64),
        "tensor-ring": ((5, 5, 5, 5), 25 * (32 + 3 + 3 + 64)),
    }
    for format in PLAIN:
        ranks, count = wanted[format.name]
        assert format.num_parameters(shape, ranks) == count
        if format.name != "tensor-ring":
            assert format.multiplications(shape, ranks, window, (16, 16)) == count * places


def test_components_of_a_cp_layer_do_not_cancel() -> None:
    torch.manual_seed(0)
    weight = torch.randn(16, 16, 3, 3, dtype=torch.float64)
    cores = FORMATS["cp"].decompose(weight, (20,))
    parts = [cores["input"].norm(dim=1), cores["kernel"].flatten(1).norm(dim=1)]
    norms = parts[0] * parts[1] * cores["output"].norm(dim=0)
    assert float(norms.max()) <= LARGEST_COMPONENT * float(weight.norm()) * (1 + 1e-9)
