import pytest
import torch

from rankscope.layers.formats.format import WeightShape
from rankscope.layers.formats.tucker_format import TuckerFormat

FORMAT = TuckerFormat()
LADDER = [(1, 1), (2, 3), (4, 2), (3, 5), (4, 6)]


@pytest.mark.parametrize("kernel", [(3,), (3, 2)])
def test_the_error_made_is_never_above_the_one_announced(kernel: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(6, 4, *kernel, dtype=torch.float64)
    for ranks, error in zip(LADDER, FORMAT.errors(weight, LADDER), strict=True):
        rebuilt = FORMAT.to_dense(FORMAT.decompose(weight, ranks), WeightShape.of(weight))
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
    assert FORMAT.errors(weight, [(1, 6)])[0] == pytest.approx(0, abs=1e-6)
    assert FORMAT.errors(weight, [(4, 1)])[0] > 0.1
    assert FORMAT.core_shapes(WeightShape(6, 4, (3, 3)), (2, 5)) == {
        "input": (2, 4),
        "kernel": (5, 2, 3, 3),
        "output": (6, 5),
    }


def test_ranks_above_what_the_other_side_spans_are_not_full() -> None:
    assert FORMAT.full_ranks(WeightShape(2, 50, (3,))) == (6, 2)
    assert FORMAT.full_ranks(WeightShape(50, 2, (3, 3))) == (2, 18)
