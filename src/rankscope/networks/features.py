"""Patch features: the vectors that a tensor-network classifier gets of an image."""

import math

import torch
from torch import Tensor, nn

from rankscope.errors import SizeError
from rankscope.rank.networks.network import require_sizes


class PatchFeatures(nn.Module):
    r"""An affine map of each patch, a nonlinearity, a normalization, and a constant.

    .. math:: f(x) = (1, z / |z|), \qquad z = \sigma(A x + b)

    with |z| the root mean square. Patches are taken row by row and share one map.

    Args:
        image: channels, height and width.
        patch: height and width of a patch.
        stride: from one patch to the next; that of the patch if None.
        num_features: of each patch, the constant 1 included.
        activation: σ; `nn.Identity()` for features that are affine.
        is_normalized: whether z is divided by its root mean square.
        generator: where the initial map comes from.

    Example:
        >>> features = PatchFeatures(image=(1, 8, 8), patch=4, num_features=5)
        >>> features(torch.ones(3, 1, 8, 8)).shape, features.num_patches
        (torch.Size([4, 3, 5]), 4)

    Raises:
        SizeError: if a size is too small, or the patches do not end where the image does.

    Reference:
        Khrulkov et al. (2018), Sec. 5, arXiv:1711.00811.
    """

    def __init__(  # noqa: PLR0913 - what features are made of, all by name
        self,
        *,
        image: tuple[int, int, int],
        patch: int,
        num_features: int,
        stride: int | None = None,
        activation: nn.Module | None = None,
        is_normalized: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        step = patch if stride is None else stride
        require_sizes("PatchFeatures", channels=image[0], patch=patch, stride=step)
        require_sizes("PatchFeatures", least=2, num_features=num_features)
        for side, size in zip(("height", "width"), image[1:], strict=True):
            if size < patch or (size - patch) % step:
                raise SizeError(
                    f"PatchFeatures: patches of {patch} at every {step} pixels do not end where a "
                    f"{side} of {size} does. Choose a patch and a stride that do."
                )
        self.image, self.patch, self.stride = image, patch, step
        self.num_features = num_features
        self.is_normalized = is_normalized
        self.activation = nn.ReLU() if activation is None else activation
        shape = (num_features - 1, image[0], patch, patch)
        # Unit variance for independent pixels of unit variance.
        self.weight = nn.Parameter(
            torch.randn(shape, generator=generator) / math.sqrt(math.prod(shape[1:]))
        )
        self.bias = nn.Parameter(torch.zeros(num_features - 1))

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of rows and columns of patches."""
        _, height, width = self.image
        return (height - self.patch) // self.stride + 1, (width - self.patch) // self.stride + 1

    @property
    def num_patches(self) -> int:
        """Number of patches."""
        return math.prod(self.grid)

    def forward(self, images: Tensor) -> Tensor:
        """Features (patches, batch, features) of images (batch, channels, height, width).

        Raises:
            SizeError: if the images have another size.
        """
        if images.ndim != 4 or tuple(images.shape[1:]) != self.image:
            raise SizeError(
                f"PatchFeatures: images must have shape (batch, {', '.join(map(str, self.image))}),"
                f" got {tuple(images.shape)}."
            )
        mapped = nn.functional.conv2d(images, self.weight, self.bias, self.stride)
        features = self.activation(mapped.flatten(2).permute(2, 0, 1))
        if self.is_normalized:
            features = nn.functional.rms_norm(features, features.shape[-1:], eps=1e-6)
        return nn.functional.pad(features, (1, 0), value=1.0)
