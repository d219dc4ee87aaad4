"""Classification by a tree of products: the convolutional circuit, or hierarchical Tucker form."""

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
from rankscope.architectures.classifiers.shallow_classifier import near_one
from rankscope.architectures.convolutional import ConvolutionalCircuit, Levels
from rankscope.architectures.sizes import require_sizes
from rankscope.diagrams.diagram import Diagram


class HierarchicalClassifier(TensorNetworkClassifier):
    r"""Linear maps of every node and products of two neighbours, in turns, up to one node.

    .. math:: u^{0,j} = a^{0,j} f(x_j), \qquad p^{l,k} = u^{l,2k} * u^{l,2k+1}, \qquad
              u^{l+1,k} = a^{l+1,k} p^{l,k}, \qquad s = p^{L-1,0}\, a^L

    Neighbours are so in the order of the patches; where their number is odd, the last is alone.

    Args:
        features: of the patches, at least two; their first one is 1.
        channels: of every level.
        num_classes: how many scores there are.
        is_shared: whether the nodes of a level share one linear map.
        generator: where the initial weights come from: maps of patches are near 1, and all others
            near the identity.

    Example:
        >>> features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=5)
        >>> classifier = HierarchicalClassifier(features, channels=3, num_classes=10)
        >>> classifier(torch.ones(7, 1, 8, 8)).shape, len(classifier.convolutions)
        (torch.Size([7, 10]), 4)

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
        is_shared: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        order, size = features.num_patches, features.num_features
        require_sizes("HierarchicalClassifier", least=2, num_patches=order)
        require_sizes("HierarchicalClassifier", channels=channels, num_classes=num_classes)
        self.features, self.num_classes = features, num_classes
        self.channels, self.is_shared = channels, is_shared
        counts = [order, *(len(windows) for windows in binary_pooling(order)[:-1])]
        nodes = [1] * len(counts) if is_shared else counts
        # Noise adds up faster where it is the same everywhere.
        parts = float(order) if is_shared else math.sqrt(order)
        maps = [near_one((nodes[0], channels, size), parts, generator)]
        for count in nodes[1:]:
            noise = torch.randn(count, channels, channels, generator=generator)
            maps.append(torch.eye(channels) + noise / math.sqrt(channels) / parts)
        self.convolutions = nn.ParameterList(maps)
        output = torch.randn(channels, num_classes, generator=generator)
        self.output = nn.Parameter(output / math.sqrt(channels * order))

    def contract(self, features: Tensor) -> Scores:
        """The scores of features (patches, batch, features)."""
        nodes, log_scale = features, features.new_zeros(features.shape[1])
        for maps in self.convolutions:
            mapped, size = rescaled(nodes @ maps.transpose(1, 2))
            log_scale = log_scale + size.sum(dim=0)
            nodes = product_of_pairs(mapped)
        return Scores.of(nodes[0] @ self.output, log_scale)

    def score_network(self, label: int) -> ConvolutionalCircuit:
        """The score of one class, with a copy of the weights.

        Raises:
            SizeError: if there is no such class.
        """
        self.require_label(label)
        circuit = ConvolutionalCircuit(
            num_tokens=self.features.num_patches,
            num_templates=self.features.num_features,
            channels=(self.channels,) * len(self.convolutions),
            is_shared=self.is_shared,
            pooling=binary_pooling(self.features.num_patches),
        ).to(self.output)
        with torch.no_grad():
            for kept, maps in zip(circuit.convolutions, self.convolutions, strict=True):
                kept.copy_(maps[0] if self.is_shared else maps)
            circuit.output.copy_(self.output[:, label])
        return circuit

    def diagram(self) -> Diagram:
        """The tree; its root also holds the classes."""
        return with_classes(self.score_network(0).diagram(), "output", self.num_classes)


def binary_pooling(num_tokens: int) -> Levels:
    """Windows of two neighbours, level by level; an odd one at the end is alone.

    Example:
        >>> binary_pooling(3)
        (((0, 1), (2,)), ((0, 1),))
    """
    levels = []
    while num_tokens > 1:
        starts = range(0, num_tokens, 2)
        levels.append(tuple(tuple(range(start, min(start + 2, num_tokens))) for start in starts))
        num_tokens = len(starts)
    return tuple(levels)
