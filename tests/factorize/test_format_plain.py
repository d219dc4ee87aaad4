"""What single plain formats promise beyond the contract of all formats."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from rankscope.factorize import (
    FORMATS,
    CPFormat,
    Format,
    PlainFormat,
    SVDFormat,
    TensorRingFormat,
    TensorTrainFormat,
    TuckerFormat,
    WeightShape,
    Window,
    random_cores,
)
from rankscope.factorize.formats.plain import LARGEST_COMPONENT, LEAST_NUMBERS, channels_last

PLAIN = [format for format in FORMATS.values() if isinstance(format, PlainFormat)]
FORMAT = pytest.mark.parametrize("format", PLAIN, ids=lambda format: format.name)
NOT_SVD = [format for format in PLAIN if format.name != "svd"]
SVD, CP, TUCKER = SVDFormat(), CPFormat(), TuckerFormat()
TRAIN, RING = TensorTrainFormat(), TensorRingFormat()
LADDER = [(1, 1), (2, 3), (4, 2), (3, 5), (4, 6)]
SHAPE = WeightShape(6, 5, (3, 2))


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
def test_channels_last_inputs_give_channels_last_outputs(format: Format) -> None:
    shape, window = WeightShape(8, 4, (3, 3)), Window((1, 1), (1, 1), (1, 1))
    cores = random_cores(format, shape, (2,) * len(format.max_ranks(shape)))
    inputs = torch.randn(2, 4, 6, 5).contiguous(memory_format=torch.channels_last)
    outputs = format.apply(inputs, cores, shape, window)
    assert outputs.is_contiguous(memory_format=torch.channels_last)


def test_a_strided_kernel_of_size_one_reads_only_what_it_needs() -> None:
    shape, window = WeightShape(8, 6, (1, 1)), Window((2, 2), (0, 0), (1, 1))
    assert SVD.flops(shape, (2,), window, (9, 9)) == 2 * 25 * (6 * 2 + 2 * 8)


def test_large_states_of_two_positions_are_arranged_and_equal() -> None:
    state = torch.randn(4, 4, 64, LEAST_NUMBERS // 1024)
    arranged = channels_last(state)
    assert arranged.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(arranged, state)


def test_small_states_and_those_of_one_position_stay_as_they_are() -> None:
    for state in (torch.randn(2, 4, 8, 8), torch.randn(4, 4, LEAST_NUMBERS)):
        assert channels_last(state) is state


@pytest.mark.parametrize("kernel", [(), (1,), (3,), (1, 1), (3, 2)])
def test_no_other_cores_of_that_rank_are_nearer(kernel: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 4, *kernel, dtype=torch.float64)
    # By hand: rows (t, w), columns (s, h).
    matrix = weight.movedim(3, 1) if len(kernel) == 2 else weight
    values = torch.linalg.svdvals(matrix.reshape(5 * math.prod(kernel[1:]), -1))
    shape = WeightShape.of(weight)
    assert SVD.full_ranks(shape) == (len(values),)
    ladder = [(rank,) for rank in range(1, len(values) + 1)]
    for ranks, error in zip(ladder, SVD.errors(weight, ladder), strict=True):
        best = float(values[ranks[0] :].norm() / values.norm())
        made = SVD.to_dense(SVD.decompose(weight, ranks), shape) - weight
        assert error == pytest.approx(best, abs=1e-12)
        assert float(made.norm() / weight.norm()) == pytest.approx(best, abs=1e-12)


def test_singular_values_are_split_evenly() -> None:
    weight = torch.randn(6, 5, 3, 3, dtype=torch.float64)
    cores = SVD.decompose(weight, (4,))
    gram_right = torch.einsum("rsh,qsh->rq", cores["right"], cores["right"])
    gram_left = torch.einsum("trw,tqw->rq", cores["left"], cores["left"])
    torch.testing.assert_close(gram_right, gram_left)
    torch.testing.assert_close(gram_left, gram_left.diagonal().diag())


def test_a_kernel_becomes_two_thin_convolutions() -> None:
    shape = WeightShape(64, 32, (5, 3))
    assert SVD.core_shapes(shape, (7,)) == {"right": (7, 32, 5), "left": (64, 7, 3)}
    window = Window((2, 1), (2, 1), (1, 1))
    # 5 S R X' Y, then 3 R T X' Y'.
    assert SVD.flops(shape, (7,), window, (16, 10)) == (
        2 * (5 * 32 * 7 * 8 * 10 + 3 * 7 * 64 * 8 * 10)
    )


def test_a_matrix_becomes_two_products() -> None:
    shape = WeightShape(6, 4)
    cores = SVD.decompose(torch.randn(6, 4), (2,))
    inputs = torch.randn(2, 3, 4)
    outputs = SVD.apply(inputs, cores, shape, Window())
    torch.testing.assert_close(outputs, functional.linear(inputs, cores["left"] @ cores["right"]))
    assert SVD.flops(shape, (2,), Window(), (), 3) == 3 * 2 * 2 * (6 + 4)
    assert SVD.intermediates(shape, (2,), Window(), ()) == 2


@pytest.mark.parametrize(("num_parameters", "ranks"), [(9, None), (10, (1,)), (59, (4,))])
def test_the_rank_is_bounded_by_the_numbers_and_by_the_matrix(
    num_parameters: int, ranks: tuple[int, ...] | None
) -> None:
    assert SVD.largest_ranks(WeightShape(6, 4), num_parameters) == ranks


def test_the_error_of_zeros_is_zero() -> None:
    assert SVD.errors(torch.zeros(6, 4), [(2,)]) == [0.0]


def test_the_parts_of_a_component_have_the_same_norm() -> None:
    torch.manual_seed(0)
    cores = CP.decompose(torch.randn(6, 5, 3, 2, dtype=torch.float64), (4,))
    norms = [
        cores["input"].norm(dim=1),
        cores["kernel"].flatten(1).norm(dim=1),
        cores["output"].norm(dim=0),
    ]
    torch.testing.assert_close(norms[0], norms[1])
    torch.testing.assert_close(norms[0], norms[2])


def test_the_error_of_cp_is_at_most_a_little_above_the_one_announced() -> None:
    torch.manual_seed(0)
    weight = torch.randn(8, 7, 3, 3, dtype=torch.float64)
    (announced,) = CP.errors(weight, [(5,)])
    rebuilt = CP.to_dense(CP.decompose(weight, (5,)), WeightShape.of(weight))
    assert float((rebuilt - weight).norm() / weight.norm()) <= announced * 1.01


@pytest.mark.parametrize(
    ("shape", "rank"),
    [(WeightShape(64, 32, (3, 3)), 288), (WeightShape(2, 2, (3, 3)), 4)],
)
def test_fibres_along_the_largest_position_suffice(shape: WeightShape, rank: int) -> None:
    assert CP.full_ranks(shape) == (rank,)


def test_a_component_is_a_matrix_for_each_place_of_the_kernel() -> None:
    cores = {
        "input": torch.tensor([[1.0, 2.0]]),
        "kernel": torch.tensor([[[3.0, 5.0]]]),
        "output": torch.tensor([[7.0], [11.0], [13.0]]),
    }
    dense = CP.to_dense(cores, WeightShape(3, 2, (1, 2)))
    assert dense[2, 1, 0, 1] == 13 * 2 * 5
    assert dense[0, 0, 0, 0] == 7 * 1 * 3


def test_components_of_a_cp_layer_do_not_cancel() -> None:
    torch.manual_seed(0)
    weight = torch.randn(16, 16, 3, 3, dtype=torch.float64)
    cores = FORMATS["cp"].decompose(weight, (20,))
    parts = [cores["input"].norm(dim=1), cores["kernel"].flatten(1).norm(dim=1)]
    norms = parts[0] * parts[1] * cores["output"].norm(dim=0)
    assert float(norms.max()) <= LARGEST_COMPONENT * float(weight.norm()) * (1 + 1e-9)


@pytest.mark.parametrize("kernel", [(3,), (3, 2)])
def test_the_error_of_tucker_is_never_above_the_one_announced(kernel: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(6, 4, *kernel, dtype=torch.float64)
    for ranks, error in zip(LADDER, TUCKER.errors(weight, LADDER), strict=True):
        rebuilt = TUCKER.to_dense(TUCKER.decompose(weight, ranks), WeightShape.of(weight))
        made = float((rebuilt - weight).norm() / weight.norm())
        assert made <= error + 1e-12
        # Both lie between the tails of one unfolding and the sum of both.
        tails = [
            torch.linalg.svdvals(weight.movedim(place, 0).flatten(1))[rank:].norm()
            for place, rank in ((1, ranks[0]), (0, ranks[1]))
        ]
        least, most = max(tails), torch.stack(tails).norm()
        assert float(least / weight.norm()) <= made + 1e-12
        assert error <= float(most / weight.norm()) + 1e-12


def test_the_first_rank_is_that_of_the_inputs() -> None:
    weight = torch.randn(6, 1, 3, 3) * torch.randn(1, 4, 1, 1)  # one direction of inputs only
    assert TUCKER.errors(weight, [(1, 6)])[0] == pytest.approx(0, abs=1e-6)
    assert TUCKER.errors(weight, [(4, 1)])[0] > 0.1
    assert TUCKER.core_shapes(WeightShape(6, 4, (3, 3)), (2, 5)) == {
        "input": (2, 4),
        "kernel": (5, 2, 3, 3),
        "output": (6, 5),
    }


def test_ranks_above_what_the_other_side_spans_are_not_full() -> None:
    assert TUCKER.full_ranks(WeightShape(2, 50, (3,))) == (6, 2)
    assert TUCKER.full_ranks(WeightShape(50, 2, (3, 3))) == (2, 18)


def _tails(weight: Tensor, ranks: tuple[int, ...]) -> list[float]:
    train = weight.movedim(0, -1)  # inputs, kernel, outputs
    return [
        float(
            torch.linalg.svdvals(train.reshape(math.prod(train.shape[:cut]), -1))[rank:].norm()
            / weight.norm()
        )
        for cut, rank in enumerate(ranks, 1)
    ]


@pytest.mark.parametrize(
    ("kernel", "ranks"),
    [((3,), (2, 3)), ((3, 2), (2, 3, 4)), ((3, 2), (3, 2, 2)), ((1, 3), (3, 3, 4))],
)
def test_errors_lie_between_the_largest_tail_and_all_of_them(
    kernel: tuple[int, ...], ranks: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    weight = torch.randn(6, 5, *kernel, dtype=torch.float64)
    rebuilt = TRAIN.to_dense(TRAIN.decompose(weight, ranks), WeightShape.of(weight))
    made = float((rebuilt - weight).norm() / weight.norm())
    (announced,) = TRAIN.errors(weight, [ranks])
    tails = _tails(weight, ranks)
    for error in (made, announced):
        assert max(tails) - 1e-12 <= error <= math.hypot(*tails) + 1e-12
    # The two ways to cut differ by little, whatever the weight.
    assert announced == pytest.approx(made, rel=0.1)


def test_a_bond_that_its_neighbours_leave_no_use_for_is_filled_with_zeros() -> None:
    weight = torch.randn(6, 5, 2, 2, dtype=torch.float64)
    cores = TRAIN.decompose(weight, (1, 4, 6))
    assert {name: tuple(core.shape) for name, core in cores.items()} == TRAIN.core_shapes(
        WeightShape(6, 5, (2, 2)), (1, 4, 6)
    )
    # From one channel of two places, at most two numbers go on.
    assert not cores["height"][2:].any()
    assert not cores["width"][:, 2:].any()


def test_cores_follow_inputs_height_width_outputs() -> None:
    assert TRAIN.core_shapes(WeightShape(6, 5, (3, 2)), (1, 2, 4)) == {
        "input": (1, 5),
        "height": (2, 1, 3),
        "width": (4, 2, 2),
        "output": (6, 4),
    }
    assert TRAIN.full_ranks(WeightShape(6, 5, (3, 2))) == (5, 12, 6)
    assert TRAIN.full_ranks(WeightShape(64, 3, (3,))) == (3, 9)


def test_a_ring_with_a_closing_bond_of_one_is_a_train() -> None:
    torch.manual_seed(0)
    cores = random_cores(RING, SHAPE, (2, 3, 4, 1), dtype=torch.float64)
    train = {**cores, "input": cores["input"][0], "output": cores["output"][:, 0]}
    torch.testing.assert_close(RING.to_dense(cores, SHAPE), TRAIN.to_dense(train, SHAPE))


@pytest.mark.parametrize("ranks", [(2, 3, 2, 1), (2, 3, 2, 2)])
def test_a_ring_is_never_worse_than_the_train_with_its_bonds(ranks: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(*SHAPE.sizes, dtype=torch.float64)
    ring = RING.to_dense(RING.decompose(weight, ranks), SHAPE)
    train = TRAIN.to_dense(TRAIN.decompose(weight, ranks[:-1]), SHAPE)
    assert float((ring - weight).norm()) <= float((train - weight).norm()) + 1e-12


def test_the_error_of_a_ring_is_at_most_the_one_of_a_short_fit() -> None:
    torch.manual_seed(0)
    weight = torch.randn(*SHAPE.sizes, dtype=torch.float64)
    rebuilt = RING.to_dense(RING.decompose(weight, (2, 2, 2, 2), seed=3), SHAPE)
    (error,) = RING.errors(weight, [(2, 2, 2, 2)], seed=3)
    assert float((rebuilt - weight).norm() / weight.norm()) <= error + 1e-12


def test_ranks_grow_only_as_far_as_their_neighbours_have_use_for() -> None:
    ranks = RING.largest_ranks(WeightShape(256, 256, (3, 3)), 58982)
    assert ranks is not None
    assert ranks[1] <= 3 * min(ranks[0], ranks[2])
    assert not RING.is_useful(SHAPE, (1, 4, 4, 1))


def test_the_last_rank_closes_the_ring() -> None:
    assert RING.core_shapes(SHAPE, (2, 3, 4, 5)) == {
        "input": (5, 2, 5),
        "height": (3, 2, 3),
        "width": (4, 3, 2),
        "output": (6, 5, 4),
    }
    assert RING.core_shapes(WeightShape(6, 5, (3,)), (2, 3, 4)) == {
        "input": (4, 2, 5),
        "height": (3, 2, 3),
        "output": (6, 4, 3),
    }
    assert RING.full_ranks(SHAPE) == (5, 12, 6, 1)
    assert RING.max_ranks(SHAPE) == (5, 12, 6, 12)
