"""Features of patches."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.errors import SizeError
from rankscope.networks import PatchFeatures


def test_a_feature_vector_is_one_and_the_normalized_map_of_its_patch(
    generator: torch.Generator,
) -> None:
    features = PatchFeatures(image=(2, 4, 6), patch=2, num_features=5, generator=generator).double()
    with torch.no_grad():
        features.bias.normal_(generator=generator)
    images = torch.randn(3, 2, 4, 6, generator=generator, dtype=torch.float64)
    found = features(images)
    assert features.grid == (2, 3)
    assert found.shape == (6, 3, 5)
    for place in range(6):
        row, column = 2 * (place // 3), 2 * (place % 3)
        patch = images[:, :, row : row + 2, column : column + 2]
        mapped = torch.einsum("bchw,fchw->bf", patch, features.weight) + features.bias
        positive = mapped.clamp(min=0)
        size = (positive.square().mean(dim=1, keepdim=True) + 1e-6).sqrt()
        torch.testing.assert_close(found[place, :, 1:], positive / size)
        assert (found[place, :, 0] == 1).all()


@settings(deadline=None, max_examples=20)
@given(share=st.floats(0.0, 1.0), seed=st.integers(0, 9))
def test_features_without_nonlinearity_and_normalization_are_affine(
    share: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = PatchFeatures(
        image=(1, 5, 5),
        patch=3,
        stride=1,
        num_features=4,
        activation=nn.Identity(),
        is_normalized=False,
        generator=generator,
    ).double()
    one, other = torch.randn(2, 1, 1, 5, 5, generator=generator, dtype=torch.float64)
    between = features(share * one + (1 - share) * other)
    torch.testing.assert_close(between, share * features(one) + (1 - share) * features(other))


def test_a_dark_patch_has_finite_features_and_gradients() -> None:
    features = PatchFeatures(image=(1, 4, 4), patch=2, num_features=3)
    found = features(torch.zeros(1, 1, 4, 4))
    found.sum().backward()
    assert found.isfinite().all()
    assert features.bias.grad is not None
    assert features.bias.grad.isfinite().all()


@pytest.mark.parametrize(("patch", "stride"), [(3, 2), (9, 1)])
def test_patches_that_leave_pixels_over_are_refused(patch: int, stride: int) -> None:
    with pytest.raises(SizeError, match=f"patches of {patch} at every {stride} .* height of 8"):
        PatchFeatures(image=(1, 8, 9), patch=patch, stride=stride, num_features=4)


def test_a_width_that_patches_do_not_fill_is_refused() -> None:
    with pytest.raises(SizeError, match="width of 9"):
        PatchFeatures(image=(1, 8, 9), patch=4, num_features=4)


def test_images_of_another_size_are_refused() -> None:
    features = PatchFeatures(image=(1, 8, 8), patch=4, num_features=4)
    with pytest.raises(SizeError, match=r"\(batch, 1, 8, 8\), got \(2, 8, 8\)"):
        features(torch.ones(2, 8, 8))


def test_a_constant_alone_is_no_feature_vector() -> None:
    with pytest.raises(SizeError, match="num_features must be at least 2, got 1"):
        PatchFeatures(image=(1, 8, 8), patch=4, num_features=1)
