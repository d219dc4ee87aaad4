import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import TrainingError
from rankscope.networks import IMAGENET_NORMALIZATION, Normalization, PadCropFlip, TensorData
from rankscope.seeds import seed_of

# Crops, flips and scales, against their definition pixel by pixel.


@settings(deadline=None)
@given(rows=st.integers(1, 6), columns=st.integers(1, 6), padding=st.integers(0, 3))
def test_every_image_is_a_window_of_the_padded_one_or_its_mirror(
    rows: int, columns: int, padding: int
) -> None:
    images = torch.arange(1, 1 + 5 * 2 * rows * columns).reshape(5, 2, rows, columns)
    generator = torch.Generator().manual_seed(rows)
    changed = PadCropFlip(padding)(images, generator)
    assert changed.shape == images.shape
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    for number in range(5):
        windows = [
            padded[number, :, down : down + rows, across : across + columns]
            for down in range(2 * padding + 1)
            for across in range(2 * padding + 1)
        ]
        results = [torch.equal(changed[number], window) for window in windows]
        mirrored = [torch.equal(changed[number], window.flip(2)) for window in windows]
        assert any(results) or any(mirrored)


def test_all_shifts_and_both_directions_occur() -> None:
    image = torch.arange(9, dtype=torch.uint8).reshape(1, 1, 3, 3).expand(2000, 1, 3, 3)
    changed = PadCropFlip(1)(image, torch.Generator().manual_seed(0))
    assert changed.dtype == torch.uint8
    assert len({tuple(picture.flatten().tolist()) for picture in changed}) == 18


def test_normalization_scales_bytes_channel_by_channel() -> None:
    images = torch.full((2, 3, 4, 4), 255, dtype=torch.uint8)
    scaled = IMAGENET_NORMALIZATION(images)
    for channel, (mean, deviation) in enumerate(
        zip(IMAGENET_NORMALIZATION.means, IMAGENET_NORMALIZATION.deviations, strict=True)
    ):
        wanted = torch.full((2, 4, 4), (1 - mean) / deviation)
        torch.testing.assert_close(scaled[:, channel], wanted)
    assert scaled.is_contiguous(memory_format=torch.channels_last)
    assert set(Normalization((0.0,), (1.0,))(images[:, :1]).flatten().tolist()) == {1.0}


# Batches that follow from their numbers alone.


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
