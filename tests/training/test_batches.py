"""Batches that follow from their numbers alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import TrainingError
from rankscope.training.batches import PadCropFlip, TensorData, seed_of


@settings(deadline=None)
@given(count=st.integers(1, 30), batch_size=st.integers(1, 12), seed=st.integers(0, 99))
def test_an_epoch_holds_every_sample_once_beside_its_target(
    count: int, batch_size: int, seed: int
) -> None:
    data = TensorData(torch.arange(count), torch.arange(count) + 100)
    batches = list(data.epoch(2, batch_size, seed=seed))
    assert len(batches) == data.num_batches(batch_size)
    inputs = torch.cat([batch.inputs for batch in batches])
    assert sorted(inputs.tolist()) == list(range(count))
    for batch in batches:
        assert batch.targets is not None
        assert torch.equal(batch.targets, batch.inputs + 100)
        assert batch.num_samples <= batch_size


@settings(deadline=None, max_examples=20)
@given(start=st.integers(0, 5), seed=st.integers(0, 2**62))
def test_batches_from_the_middle_on_are_those_of_the_whole_epoch(start: int, seed: int) -> None:
    images = torch.arange(10 * 3 * 8 * 8).reshape(10, 3, 8, 8)
    data = TensorData(images, augment=PadCropFlip(2))
    whole = list(data.epoch(1, 2, seed=seed))
    for wanted, got in zip(whole[start:], data.epoch(1, 2, seed=seed, start=start), strict=True):
        assert torch.equal(wanted.inputs, got.inputs)


def test_other_epochs_and_seeds_have_another_order() -> None:
    data = TensorData(torch.arange(100))
    orders = [
        tuple(next(data.epoch(epoch, 100, seed=seed)).inputs.tolist())
        for epoch in range(3)
        for seed in range(3)
    ]
    assert len(set(orders)) == 9


def test_batches_for_evaluation_keep_their_order_and_are_not_augmented() -> None:
    images = torch.arange(5 * 3 * 4 * 4).reshape(5, 3, 4, 4)
    data = TensorData(images, augment=PadCropFlip(1))
    assert torch.equal(torch.cat([batch.inputs for batch in data.batches(2)]), images)
    assert len(data.head(3)) == 3


def test_seeds_follow_from_every_part() -> None:
    seeds = {seed_of("a", 1, 2), seed_of("a", 12), seed_of("b", 1, 2), seed_of("a", 2, 1)}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_data_without_samples_or_with_other_targets_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"at least one sample, got the shape \(0, 3\)"):
        TensorData(torch.zeros(0, 3))
    with pytest.raises(TrainingError, match=r"4 inputs, but the shape of the targets is \(5,\)"):
        TensorData(torch.zeros(4, 3), torch.zeros(5))
