from itertools import product
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import ExperimentError
from rankscope.lab import find_experiment
from rankscope.lab.experiments import Row, RunContext, TrainRankEntry, random_train
from rankscope.lab.experiments.tt_cp_rank import (
    bound_facts,
    coefficients,
    intervals,
    odd_even_rank,
)
from rankscope.rank import TensorTrain

TT_CP_RANK = find_experiment("tt-cp-rank")


def run(entry: TrainRankEntry, folder: Path) -> Row:
    return entry.run(RunContext(folder, None, 60.0))


@settings(deadline=None, max_examples=10)
@given(order=st.integers(2, 6), seed=st.integers(0, 99))
def test_no_cut_of_the_chain_has_a_larger_rank_than_its_bond(order: int, seed: int) -> None:
    tensor = torch.from_numpy(random_train(order, seed)).double()
    ranks = [int(torch.linalg.matrix_rank(tensor.reshape(2**cut, -1))) for cut in range(1, order)]
    assert max(ranks) <= 3


def test_coefficients_are_those_of_the_exact_network_of_the_same_cores() -> None:
    shapes = ((2, 3), (3, 2, 3), (3, 2))
    first, inner, last = (numpy.arange(numpy.prod(shape)).reshape(shape) - 4 for shape in shapes)
    train = TensorTrain(order=4, size=2, bond=3, has_equal_cores=True).double()
    with torch.no_grad():
        for parameter, core in zip(train.cores, (first, inner, last), strict=True):
            parameter.copy_(torch.from_numpy(core).reshape(parameter.shape))
    words = list(product(range(2), repeat=4))
    values = train(torch.eye(2, dtype=torch.float64)[torch.tensor(words)]).detach()
    result = torch.from_numpy(coefficients(first, inner, last, 4)).double()
    torch.testing.assert_close(result, values.reshape(2, 2, 2, 2))


@pytest.mark.parametrize("order", [2, 4, 6])
def test_even_orders_attain_the_theorem_and_the_interval_closes(order: int, tmp_path: Path) -> None:
    row = run(TrainRankEntry(order, num_restarts=3), tmp_path)
    assert row["q^(d/2)"] == row["odd-even rank"] == row["its minimal cut"] == 2 ** (order // 2)
    assert row["CP rank at least"] == row["CP rank at most"] == 2 ** (order // 2)


def test_odd_orders_have_no_theorem_and_an_honest_interval(tmp_path: Path) -> None:
    row = run(TrainRankEntry(5, num_restarts=2), tmp_path)
    least, most, failed = (
        row[name] for name in ("CP rank at least", "CP rank at most", "sizes without success")
    )
    assert row["q^(d/2)"] is None
    assert isinstance(least, int)
    assert isinstance(most, int)
    assert isinstance(failed, list)
    assert 4 <= least <= most
    assert all(least <= size < most for size in failed)


def test_the_rank_is_that_of_odd_against_even_positions() -> None:
    eye = numpy.eye(2, dtype=numpy.int64)
    paired = numpy.einsum("ab,cd->abcd", eye, eye)  # neighbours are equal
    assert odd_even_rank(paired) == 4
    assert odd_even_rank(paired.transpose(0, 2, 1, 3)) == 1


@pytest.mark.parametrize("order", [1, 14])
def test_orders_that_do_not_fit_are_refused(order: int) -> None:
    with pytest.raises(ExperimentError, match=f"order must lie in 2..13, got {order}"):
        TrainRankEntry(order)


def test_the_figure_shows_every_interval() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    rows: list[Row] = [
        {"d": 4, "seed": seed, "q^(d/2)": 4, "odd-even rank": 4, "CP rank at least": 4,
         "CP rank at most": 4 + seed} for seed in range(3)
    ]  # fmt: skip
    figure = intervals(rows)
    assert isinstance(figure, Figure)
    assert len(figure.axes[0].lines) == 2 + 3


def test_the_committed_run_goes_to_order_ten() -> None:
    orders = [entry.order for entry in TT_CP_RANK.entries if isinstance(entry, TrainRankEntry)]
    assert orders == list(range(2, 11))


def enclosed(order: int, least: int, most: int) -> Row:
    bound = 2 ** (order // 2) if order % 2 == 0 else None
    return {"d": order, "q^(d/2)": bound, "CP rank at least": least, "CP rank at most": most}


def test_the_answer_counts_trains_above_the_bound_and_orders_that_attain_it() -> None:
    rows = [enclosed(2, 2, 2), enclosed(4, 4, 4), enclosed(4, 4, 5), enclosed(6, 7, 8)]
    answer, *intervals = bound_facts([*rows, enclosed(5, 4, 5)])
    assert answer.detail == (
        "in 3 of 4 trains of even order; no more products than that were needed at order 2 and 6"
    )
    assert len(intervals) == 4
    assert "order 5" in bound_facts([enclosed(5, 4, 5)])[0].subject
