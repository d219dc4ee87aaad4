"""Classification by a sum of products over all patches: the CP form."""

import math

import torch
from torch import Tensor, nn

from rankscope.architectures.classifiers.classifier import (
    Scores,
    TensorNetworkClassifier,
    product_of_pairs,
    rescaled,
    with_classes,
)
from rankscope.architectures.classifiers.features import PatchFeatures
from rankscope.architectures.shallow import Shallow
from rankscope.architectures.sizes import require_sizes
from rankscope.diagrams.diagram import Diagram


class ShallowClassifier(TensorNetworkClassifier):
    r"""Channels that each multiply one linear form of every patch, mixed for each class.

    .. math:: s_y = \sum_{z=1}^Z a_{zy} \prod_i \langle v^{i,z}, f(x_i) \rangle

    Args:
        features: of the patches, at least two; their first one is 1.
        channels: number of products, Z.
        num_classes: how many scores there are.
        generator: where the initial weights come from: all products are near 1.

    Example:
        >>> features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=5)
        >>> ShallowClassifier(features, channels=3, num_classes=10)(torch.ones(7, 1, 8, 8)).shape
        torch.Size([7, 10])

    Raises:
        SizeError: if a size is not positive, or there is only one patch.

    Reference:
        Cohen et al. (2016), arXiv:1509.05009.
    """

    def __init__(
        self,
        features: PatchFeatures,
        *,
        channels: int,
        num_classes: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        order, size = features.num_patches, features.num_features
        require_sizes("ShallowClassifier", least=2, num_patches=order)
        require_sizes("ShallowClassifier", channels=channels, num_classes=num_classes)
        self.features, self.num_classes, self.channels = features, num_classes, channels
        self.factors = nn.Parameter(near_one((order, channels, size), math.sqrt(order), generator))
        mixing = torch.randn(channels, num_classes, generator=generator)
        self.mixing = nn.Parameter(mixing / math.sqrt(channels * order))

    def contract(self, features: Tensor) -> Scores:
        """The scores of features (patches, batch, features)."""
        products, log_scale = rescaled(features @ self.factors.transpose(1, 2))
        log_scale = log_scale.sum(dim=0)
        while len(products) > 1:
            products, change = rescaled(product_of_pairs(products))
            log_scale = log_scale + change.sum(dim=0)
        return Scores.of(products[0] @ self.mixing, log_scale)

    def score_network(self, label: int) -> Shallow:
        """The score of one class, with a copy of the weights.

        Raises:
            SizeError: if there is no such class.
        """
        self.require_label(label)
        shallow = Shallow(
            order=self.features.num_patches,
            size=self.features.num_features,
            channels=self.channels,
        ).to(self.factors)
        with torch.no_grad():
            shallow.factors.copy_(self.factors)
            shallow.mixing.copy_(self.mixing[:, label])
        return shallow

    def diagram(self) -> Diagram:
        """The CP form; the mixing weights also hold the classes."""
        return with_classes(self.score_network(0).diagram(), "mixing", self.num_classes)


def near_one(
    shape: tuple[int, int, int], parts: float, generator: torch.Generator | None
) -> Tensor:
    """Linear forms (nodes, channels, size): 1 at the constant, and one part in `parts` of noise."""
    forms = torch.randn(shape, generator=generator) / math.sqrt(shape[2]) / parts
    forms[:, :, 0] += 1.0
    return forms
