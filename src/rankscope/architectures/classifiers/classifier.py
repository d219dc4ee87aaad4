"""What the tensor-network classifiers share: scores with their scale, and exact counterparts."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from rankscope.architectures.classifiers.features import PatchFeatures
from rankscope.architectures.network import PolynomialNetwork
from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.parts import Index, IndexKind
from rankscope.errors import SizeError

# The logarithm from which on logits do not grow: a softmax of such differences is 0 or 1 anyway,
# and float32 ends at e^88.
LARGEST_LOG_SCALE = 64.0


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of classes, each sample with a scale of its own, so that none is out of range.

    Args:
        values: (batch, classes).
        log_scale: (batch,); the scores are `values` times its exponential.
    """

    values: Tensor
    log_scale: Tensor

    @classmethod
    def of(cls, values: Tensor, log_scale: Tensor) -> "Scores":
        """Scores whose largest value is of size 1."""
        sized, log_size = rescaled(values)
        return cls(sized, log_scale + log_size)

    def logits(self) -> Tensor:
        """The scores themselves (batch, classes); a scale beyond e^64 counts as e^64."""
        return self.values * self.log_scale.clamp(max=LARGEST_LOG_SCALE).exp()[:, None]


class TensorNetworkClassifier(nn.Module, ABC):
    """A classifier whose scores are linear in the feature vector of each patch.

    The separation rank of a score over the patches is that of its `score_network`, whenever the
    features are linearly independent functions of a patch.

    Attributes:
        features: of the patches.
        num_classes: how many scores there are.
    """

    features: PatchFeatures
    num_classes: int

    @abstractmethod
    def contract(self, features: Tensor) -> Scores:
        """The scores of features (patches, batch, features)."""

    @abstractmethod
    def score_network(self, label: int) -> PolynomialNetwork:
        """The score of one class as a function of the features, with a copy of the weights.

        It has bounds and an exact separation rank: `measure_rank(network, partition,
        weights=dict(network.named_parameters()))`.

        Raises:
            SizeError: if there is no such class.
        """

    @abstractmethod
    def diagram(self) -> Diagram:
        """All scores of one sample; its features are rows of an array (patches, features)."""

    def scores(self, images: Tensor) -> Scores:
        """The scores of images (batch, channels, height, width), with their scale."""
        return self.contract(self.features(images))

    def forward(self, images: Tensor) -> Tensor:
        """The scores (batch, classes), to be used as logits."""
        return self.scores(images).logits()

    def require_label(self, label: int) -> None:
        """Refuse a class that there is not.

        Raises:
            SizeError: if there is none of that number.
        """
        if not 0 <= label < self.num_classes:
            raise SizeError(
                f"{type(self).__name__} has the classes 0..{self.num_classes - 1}, got {label}."
            )


def rescaled(values: Tensor) -> tuple[Tensor, Tensor]:
    """Values (…, channels) whose largest is of size 1, and the logarithms of the sizes (…).

    Sizes are constants to the gradient: what is divided here is multiplied again in the end.
    """
    size = values.detach().abs().amax(dim=-1, keepdim=True)
    size = size.masked_fill(size == 0, 1.0)
    return values / size, size[..., 0].log()


def product_of_pairs(nodes: Tensor) -> Tensor:
    """Products of neighbours along the first position; an odd one at the end stays."""
    products = nodes[0 : len(nodes) - 1 : 2] * nodes[1::2]
    return products if len(nodes) % 2 == 0 else torch.cat([products, nodes[-1:]])


def with_classes(diagram: Diagram, last: str, num_classes: int) -> Diagram:
    """The diagram of a score as that of all scores: one of its nodes also holds the classes."""
    nodes = [
        replace(node, indices=(*node.indices, "y")) if node.name == last else node
        for node in diagram.nodes
    ]
    classes = Index("y", num_classes, "Y", IndexKind.FEATURE)
    return replace(
        diagram,
        nodes=tuple(nodes),
        indices=(*diagram.indices, classes),
        output=("y",),
        title=f"{diagram.title}, {num_classes} classes",
    )
