"""Crops, flips and scales, against their definition pixel by pixel."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.training.batches import IMAGENET_NORMALIZATION, Normalization, PadCropFlip


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
        found = [torch.equal(changed[number], window) for window in windows]
        mirrored = [torch.equal(changed[number], window.flip(2)) for window in windows]
        assert any(found) or any(mirrored)


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
