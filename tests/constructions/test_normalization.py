import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.constructions.blocks import BatchNormalization, layer_normalize, moments
from rankscope.errors import ConstructionError

sizes = st.integers(2, 5)
seeds = st.integers(0, 2**16)


def random(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(*shape, generator=generator, dtype=torch.float64) + 1


@settings(deadline=None, max_examples=30)
@given(batch=sizes, channels=sizes, side=sizes, seed=seeds)
def test_batch_normalization_is_torchs_in_training_and_inference(
    batch: int, channels: int, side: int, seed: int
) -> None:
    theirs = nn.BatchNorm2d(channels, dtype=torch.float64)
    shape = (channels, side, side)
    ours = BatchNormalization.new(shape, over=(0, 2, 3), dtype=torch.float64)
    for step in range(3):
        images = random(seed + step, batch, *shape)
        outputs, ours = ours.train(images)
        torch.testing.assert_close(outputs, theirs(images))
    theirs.eval()
    torch.testing.assert_close(ours.infer(images), theirs(images))
    assert theirs.running_mean is not None
    assert theirs.running_var is not None
    torch.testing.assert_close(ours.mean.flatten(), theirs.running_mean)
    torch.testing.assert_close(ours.variance.flatten(), theirs.running_var)


@settings(deadline=None, max_examples=30)
@given(batch=sizes, positions=sizes, channels=sizes, seed=seeds)
def test_the_lectures_batch_normalization_is_torchs_with_a_feature_for_each_entry(
    batch: int, positions: int, channels: int, seed: int
) -> None:
    values = random(seed, batch, positions, channels)
    layer = BatchNormalization.new((positions, channels), dtype=torch.float64)
    theirs = nn.BatchNorm1d(positions * channels, dtype=torch.float64)
    torch.testing.assert_close(layer.train(values)[0].flatten(1), theirs(values.flatten(1)))


@settings(deadline=None, max_examples=30)
@given(batch=sizes, positions=sizes, channels=sizes, num_axes=st.integers(1, 2), seed=seeds)
def test_layer_normalization_is_torchs(
    batch: int, positions: int, channels: int, num_axes: int, seed: int
) -> None:
    values = random(seed, batch, positions, channels)
    theirs = nn.LayerNorm(values.shape[-num_axes:], dtype=torch.float64)
    torch.testing.assert_close(layer_normalize(values, num_axes=num_axes), theirs(values))


@settings(deadline=None, max_examples=30)
@given(seed=seeds, scale=st.floats(0.5, 2.0), shift=st.floats(-5.0, 5.0))
def test_layer_normalization_does_not_see_the_scale_and_shift_of_a_sample(
    seed: int, scale: float, shift: float
) -> None:
    values = random(seed, 3, 8)
    before = layer_normalize(values, epsilon=0.0)
    torch.testing.assert_close(layer_normalize(scale * values + shift, epsilon=0.0), before)


def test_normalized_values_have_mean_zero_and_variance_one() -> None:
    found = moments(layer_normalize(random(0, 4, 50), epsilon=0.0), over=(1,))
    torch.testing.assert_close(found.mean, torch.zeros_like(found.mean))
    torch.testing.assert_close(found.variance, torch.ones_like(found.variance))
    assert found.count == 50


def test_scale_and_shift_come_last() -> None:
    layer = BatchNormalization.new((2,))
    layer = BatchNormalization(
        layer.mean, layer.variance, (0,), 0.1, 0.0, layer.scale * 3, layer.shift + 7
    )
    batch = torch.tensor([[1.0, 4.0], [3.0, 8.0]])
    assert layer.train(batch)[0].tolist() == [[4.0, 4.0], [10.0, 10.0]]
    assert layer.infer(batch).tolist() == [[10.0, 19.0], [16.0, 31.0]]


@pytest.mark.parametrize("over", [(3,), (-4,), (1, -2), (0, 0)])
def test_axes_that_are_not_there_are_refused(over: tuple[int, ...]) -> None:
    with pytest.raises(ConstructionError, match=r"of the 3 axes of shape \(2, 3, 4\)"):
        moments(torch.zeros(2, 3, 4), over=over)


def test_no_axis_and_no_value_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"got axes \(\) of shape \(2,\)"):
        moments(torch.zeros(2), over=())
    with pytest.raises(ConstructionError, match=r"got axes \(0,\) of shape \(0, 3\)"):
        moments(torch.zeros(0, 3), over=(0,))


def test_a_batch_of_one_is_refused() -> None:
    with pytest.raises(ConstructionError, match=r"at least 2 values.*got 1 in .* \(1, 3\)"):
        BatchNormalization.new((3,)).train(torch.zeros(1, 3))


def test_batch_normalization_must_average_over_the_batch() -> None:
    with pytest.raises(ConstructionError, match=r"axis 0, got over=\(1,\)"):
        BatchNormalization.new((3,), over=(1,))
