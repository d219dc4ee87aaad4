import math

import pytest
import torch
from torch.nn import functional

from rankscope.layers.formats.format import WeightShape, Window
from rankscope.layers.formats.svd_format import SVDFormat

FORMAT = SVDFormat()


@pytest.mark.parametrize("kernel", [(), (1,), (3,), (1, 1), (3, 2)])
def test_no_other_cores_of_that_rank_are_nearer(kernel: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 4, *kernel, dtype=torch.float64)
    # By hand: rows (t, w), columns (s, h).
    matrix = weight.movedim(3, 1) if len(kernel) == 2 else weight
    values = torch.linalg.svdvals(matrix.reshape(5 * math.prod(kernel[1:]), -1))
    shape = WeightShape.of(weight)
    assert FORMAT.full_ranks(shape) == (len(values),)
    ladder = [(rank,) for rank in range(1, len(values) + 1)]
    for ranks, error in zip(ladder, FORMAT.errors(weight, ladder), strict=True):
        best = float(values[ranks[0] :].norm() / values.norm())
        made = FORMAT.to_dense(FORMAT.decompose(weight, ranks), shape) - weight
        assert error == pytest.approx(best, abs=1e-12)
        assert float(made.norm() / weight.norm()) == pytest.approx(best, abs=1e-12)


def test_singular_values_are_split_evenly() -> None:
    weight = torch.randn(6, 5, 3, 3, dtype=torch.float64)
    cores = FORMAT.decompose(weight, (4,))
    gram_right = torch.einsum("rsh,qsh->rq", cores["right"], cores["right"])
    gram_left = torch.einsum("trw,tqw->rq", cores["left"], cores["left"])
    torch.testing.assert_close(gram_right, gram_left)
    torch.testing.assert_close(gram_left, gram_left.diagonal().diag())


def test_a_kernel_becomes_two_thin_convolutions() -> None:
    shape = WeightShape(64, 32, (5, 3))
    assert FORMAT.core_shapes(shape, (7,)) == {"right": (7, 32, 5), "left": (64, 7, 3)}
    window = Window((2, 1), (2, 1), (1, 1))
    first, second = FORMAT.steps(shape)
    assert (first.along, second.along) == ((0,), (1,))
    # 5 S R X' Y, then 3 R T X' Y'.
    assert FORMAT.multiplications(shape, (7,), window, (16, 10)) == (
        5 * 32 * 7 * 8 * 10 + 3 * 7 * 64 * 8 * 10
    )


def test_a_matrix_becomes_two_products() -> None:
    shape = WeightShape(6, 4)
    cores = FORMAT.decompose(torch.randn(6, 4), (2,))
    inputs = torch.randn(2, 3, 4)
    outputs = FORMAT.apply(inputs, cores, shape, Window())
    torch.testing.assert_close(outputs, functional.linear(inputs, cores["left"] @ cores["right"]))
    assert FORMAT.multiplications(shape, (2,), Window(), ()) == 2 * (6 + 4)
    assert FORMAT.activations(shape, (2,), Window(), ()) == 2


def test_rows_are_those_of_the_matrix() -> None:
    cores = FORMAT.decompose(torch.randn(6, 4, dtype=torch.float64), (2,))
    numbers = torch.tensor([[5, 0], [2, 2]])
    wanted = (cores["left"] @ cores["right"])[numbers]
    torch.testing.assert_close(FORMAT.rows(cores, WeightShape(6, 4), numbers), wanted)


def test_a_weight_of_zeros_has_cores_of_zeros() -> None:
    cores = FORMAT.decompose(torch.zeros(6, 4), (2,))
    assert not any(core.any() for core in cores.values())
    assert FORMAT.errors(torch.zeros(6, 4), [(2,)]) == [0.0]


@pytest.mark.parametrize(("num_parameters", "ranks"), [(9, None), (10, (1,)), (59, (4,))])
def test_the_rank_is_bounded_by_the_numbers_and_by_the_matrix(
    num_parameters: int, ranks: tuple[int, ...] | None
) -> None:
    assert FORMAT.largest_ranks(WeightShape(6, 4), num_parameters) == ranks
