import pytest
import torch

from rankscope.layers.cores import random_cores
from rankscope.layers.formats.format import WeightShape
from rankscope.layers.formats.tensor_ring_format import TensorRingFormat
from rankscope.layers.formats.tensor_train_format import TensorTrainFormat

FORMAT, TRAIN = TensorRingFormat(), TensorTrainFormat()
SHAPE = WeightShape(6, 5, (3, 2))


def test_a_ring_with_a_closing_bond_of_one_is_a_train() -> None:
    torch.manual_seed(0)
    cores = random_cores(FORMAT, SHAPE, (2, 3, 4, 1), dtype=torch.float64)
    train = {**cores, "input": cores["input"][0], "output": cores["output"][:, 0]}
    torch.testing.assert_close(FORMAT.to_dense(cores, SHAPE), TRAIN.to_dense(train, SHAPE))


@pytest.mark.parametrize("ranks", [(2, 3, 2, 1), (2, 3, 2, 2)])
def test_a_ring_is_never_worse_than_the_train_with_its_bonds(ranks: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(*SHAPE.sizes, dtype=torch.float64)
    ring = FORMAT.to_dense(FORMAT.decompose(weight, ranks), SHAPE)
    train = TRAIN.to_dense(TRAIN.decompose(weight, ranks[:-1]), SHAPE)
    assert float((ring - weight).norm()) <= float((train - weight).norm()) + 1e-12


def test_the_error_made_is_at_most_the_one_of_a_short_fit() -> None:
    torch.manual_seed(0)
    weight = torch.randn(*SHAPE.sizes, dtype=torch.float64)
    rebuilt = FORMAT.to_dense(FORMAT.decompose(weight, (2, 2, 2, 2), seed=3), SHAPE)
    (error,) = FORMAT.errors(weight, [(2, 2, 2, 2)], seed=3)
    assert float((rebuilt - weight).norm() / weight.norm()) <= error + 1e-12


def test_ranks_grow_only_as_far_as_their_neighbours_have_use_for() -> None:
    ranks = FORMAT.largest_ranks(WeightShape(256, 256, (3, 3)), 58982)
    assert ranks is not None
    assert ranks[1] <= 3 * min(ranks[0], ranks[2])
    assert not FORMAT.is_useful(SHAPE, (1, 4, 4, 1))


def test_the_last_rank_closes_the_ring() -> None:
    assert FORMAT.core_shapes(SHAPE, (2, 3, 4, 5)) == {
        "input": (5, 2, 5),
        "height": (3, 2, 3),
        "width": (4, 3, 2),
        "output": (6, 5, 4),
    }
    assert FORMAT.core_shapes(WeightShape(6, 5, (3,)), (2, 3, 4)) == {
        "input": (4, 2, 5),
        "height": (3, 2, 3),
        "output": (6, 4, 3),
    }
    assert FORMAT.full_ranks(SHAPE) == (5, 12, 6, 1)
    assert FORMAT.max_ranks(SHAPE) == (5, 12, 6, 12)
