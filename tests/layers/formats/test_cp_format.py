import pytest
import torch

from rankscope.layers.formats.cp_format import CPFormat
from rankscope.layers.formats.format import WeightShape

FORMAT = CPFormat()


def test_the_parts_of_a_component_have_the_same_norm() -> None:
    torch.manual_seed(0)
    cores = FORMAT.decompose(torch.randn(6, 5, 3, 2, dtype=torch.float64), (4,))
    norms = [
        cores["input"].norm(dim=1),
        cores["kernel"].flatten(1).norm(dim=1),
        cores["output"].norm(dim=0),
    ]
    torch.testing.assert_close(norms[0], norms[1])
    torch.testing.assert_close(norms[0], norms[2])


def test_the_error_made_is_at_most_a_little_above_the_one_announced() -> None:
    torch.manual_seed(0)
    weight = torch.randn(8, 7, 3, 3, dtype=torch.float64)
    (announced,) = FORMAT.errors(weight, [(5,)])
    rebuilt = FORMAT.to_dense(FORMAT.decompose(weight, (5,)), WeightShape.of(weight))
    assert float((rebuilt - weight).norm() / weight.norm()) <= announced * 1.01


@pytest.mark.parametrize(
    ("shape", "rank"),
    [(WeightShape(64, 32, (3, 3)), 288), (WeightShape(2, 2, (3, 3)), 4)],
)
def test_fibres_along_the_largest_position_suffice(shape: WeightShape, rank: int) -> None:
    assert FORMAT.full_ranks(shape) == (rank,)


def test_a_component_is_a_matrix_for_each_place_of_the_kernel() -> None:
    cores = {
        "input": torch.tensor([[1.0, 2.0]]),
        "kernel": torch.tensor([[[3.0, 5.0]]]),
        "output": torch.tensor([[7.0], [11.0], [13.0]]),
    }
    dense = FORMAT.to_dense(cores, WeightShape(3, 2, (1, 2)))
    assert dense[2, 1, 0, 1] == 13 * 2 * 5
    assert dense[0, 0, 0, 0] == 7 * 1 * 3
