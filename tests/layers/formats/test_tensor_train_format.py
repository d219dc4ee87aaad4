import math

import pytest
import torch
from torch import Tensor

from rankscope.layers.formats.format import WeightShape
from rankscope.layers.formats.tensor_train_format import TensorTrainFormat

FORMAT = TensorTrainFormat()


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
    rebuilt = FORMAT.to_dense(FORMAT.decompose(weight, ranks), WeightShape.of(weight))
    made = float((rebuilt - weight).norm() / weight.norm())
    (announced,) = FORMAT.errors(weight, [ranks])
    tails = _tails(weight, ranks)
    for error in (made, announced):
        assert max(tails) - 1e-12 <= error <= math.hypot(*tails) + 1e-12
    # The two ways to cut differ by little, whatever the weight.
    assert announced == pytest.approx(made, rel=0.1)


def test_a_bond_that_its_neighbours_leave_no_use_for_is_filled_with_zeros() -> None:
    weight = torch.randn(6, 5, 2, 2, dtype=torch.float64)
    cores = FORMAT.decompose(weight, (1, 4, 6))
    assert {name: tuple(core.shape) for name, core in cores.items()} == FORMAT.core_shapes(
        WeightShape(6, 5, (2, 2)), (1, 4, 6)
    )
    # From one channel of two places, at most two numbers go on.
    assert not cores["height"][2:].any()
    assert not cores["width"][:, 2:].any()


def test_cores_follow_inputs_height_width_outputs() -> None:
    assert FORMAT.core_shapes(WeightShape(6, 5, (3, 2)), (1, 2, 4)) == {
        "input": (1, 5),
        "height": (2, 1, 3),
        "width": (4, 2, 2),
        "output": (6, 4),
    }
    assert FORMAT.full_ranks(WeightShape(6, 5, (3, 2))) == (5, 12, 6)
    assert FORMAT.full_ranks(WeightShape(64, 3, (3,))) == (3, 9)
