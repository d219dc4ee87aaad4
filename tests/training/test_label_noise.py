"""Labels replaced at random."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import TrainingError
from rankscope.training.batches import TensorData
from rankscope.training.datasets import with_random_labels


def labelled(count: int, classes: int) -> TensorData:
    return TensorData(torch.arange(count)[:, None], torch.arange(count) % classes)


def targets(data: TensorData) -> torch.Tensor:
    assert data.targets is not None
    return data.targets


@settings(deadline=None)
@given(
    count=st.integers(1, 40),
    classes=st.integers(1, 10),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_at_most_the_share_is_changed_and_all_else_stays(
    count: int, classes: int, share: float, seed: int
) -> None:
    data = labelled(count, classes)
    before = targets(data).clone()
    noisy = with_random_labels(data, share, classes, seed=seed)
    assert int((targets(noisy) != before).sum()) <= round(share * count)
    assert 0 <= int(targets(noisy).min()) <= int(targets(noisy).max()) < classes
    assert torch.equal(targets(data), before)
    assert torch.equal(noisy.inputs, data.inputs)
    again = with_random_labels(data, share, classes, seed=seed)
    assert torch.equal(targets(noisy), targets(again))


def test_draws_are_from_all_classes_alike() -> None:
    data = labelled(20_000, 4)
    noisy = targets(with_random_labels(data, 0.5, 4))
    wrong = float((noisy != targets(data)).double().mean())
    # Expected: 0.5 * 3/4; five standard deviations of a mean of 10,000 draws.
    assert abs(wrong - 0.375) < 5 * (0.5 * 0.1875 / 10_000) ** 0.5
    counts = torch.bincount(noisy, minlength=4).double() / len(noisy)
    assert float((counts - 0.25).abs().max()) < 5 * (0.1875 / 20_000) ** 0.5


def test_a_larger_share_replaces_what_a_smaller_one_does_and_more() -> None:
    data = labelled(200, 10)
    few, many = (targets(with_random_labels(data, share, 10)) for share in (0.3, 0.8))
    changed = few != targets(data)
    assert torch.equal(few[changed], many[changed])
    assert int((many != targets(data)).sum()) > int(changed.sum())


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_outside_the_unit_interval_is_refused(share: float) -> None:
    with pytest.raises(TrainingError, match=rf"got 4 labels, {share} and 2"):
        with_random_labels(labelled(4, 2), share, 2)


def test_samples_without_labels_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"got no labels, 0.5 and 2"):
        with_random_labels(TensorData(torch.zeros(3, 1)), 0.5, 2)
