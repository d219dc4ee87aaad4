"""Samples, margins, and what a margin allows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import GeneralizationError
from rankscope.generalize import (
    AsPublished,
    Euclidean,
    LargestEntry,
    Sample,
    Tolerance,
    margin_loss,
    margins,
    require_margin,
)

TOLERANCES = (LargestEntry(), Euclidean(), AsPublished())


def test_a_margin_is_the_label_above_the_best_other_class() -> None:
    outputs = torch.tensor([[1.0, 4.0, 2.5], [0.0, -1.0, 3.0]])
    assert margins(outputs, torch.tensor([1, 0])).tolist() == [1.5, -3.0]


def test_the_margin_loss_counts_margins_that_are_equal() -> None:
    outputs, labels = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 0, 1])
    assert [margin_loss(outputs, labels, gamma) for gamma in (0.0, 1.0, 2.0)] == [1 / 3, 2 / 3, 1.0]


@settings(deadline=None)
@given(
    tolerance=st.sampled_from(TOLERANCES),
    margin=st.floats(0.01, 100.0),
    seed=st.integers(0, 2**16),
)
def test_outputs_within_the_allowed_distance_lose_at_most_the_threshold(
    tolerance: Tolerance, margin: float, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    outputs = torch.randn(5, 4, generator=draw, dtype=torch.float64)
    moves = torch.randn(5, 4, generator=draw, dtype=torch.float64)
    moves *= tolerance.allowed(margin) / moves.norm(dim=1, keepdim=True)
    labels = torch.randint(4, (5,), generator=draw)
    lost = margins(outputs, labels) - margins(outputs + moves, labels)
    assert (lost <= tolerance.lost(moves) + 1e-9).all()
    assert (tolerance.lost(moves) <= tolerance.threshold(margin) + 1e-9).all()


@pytest.mark.parametrize("tolerance", TOLERANCES)
def test_the_margin_that_is_lost_can_be_lost(tolerance: Tolerance) -> None:
    """One class falls by as much as another rises: no smaller number would do."""
    move = torch.tensor([[-1.0, 1.0, 0.0]])
    outputs, labels = torch.tensor([[3.0, 0.0, 0.0]]), torch.tensor([0])
    lost = margins(outputs, labels) - margins(outputs + move, labels)
    torch.testing.assert_close(lost, tolerance.lost(move))


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(GeneralizationError, match=r"at least 1; got inputs of shape \(0, 3\)"):
        Sample(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (torch.zeros(3), torch.zeros(3, dtype=torch.long)),
        (torch.zeros(3, 2), torch.zeros(2, dtype=torch.long)),
        (torch.zeros(3, 2), torch.zeros(3)),
        (torch.zeros(3, 2), torch.zeros(3, 1, dtype=torch.long)),
    ],
)
def test_inputs_and_labels_that_do_not_belong_together_are_refused(
    inputs: torch.Tensor, labels: torch.Tensor
) -> None:
    with pytest.raises(GeneralizationError, match="one integer label for each"):
        Sample(inputs, labels)


def test_inputs_that_are_not_finite_are_counted() -> None:
    inputs = torch.zeros(4, 2)
    inputs[1, 0], inputs[3, 1] = float("nan"), float("inf")
    with pytest.raises(GeneralizationError, match="2 of 4 inputs"):
        Sample(inputs, torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize(("labels", "classes"), [([0, 3], 3), ([-1, 1], 3), ([0, 0], 1)])
def test_labels_out_of_range_are_refused(labels: list[int], classes: int) -> None:
    sample = Sample(torch.zeros(2, 2), torch.tensor(labels))
    with pytest.raises(
        GeneralizationError,
        match=rf"gives {classes} scores.*got {min(labels)} to {max(labels)}",
    ):
        sample.require_classes(classes)


@pytest.mark.parametrize("margin", [0.0, -2.5, float("nan")])
def test_a_margin_must_be_positive(margin: float) -> None:
    with pytest.raises(GeneralizationError, match=f"got {margin}"):
        require_margin(margin)
