"""Classification by a tensor train that reads an image patch by patch."""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from rankscope.architectures.classifiers.classifier import (
    Scores,
    TensorNetworkClassifier,
    with_classes,
)
from rankscope.architectures.classifiers.features import PatchFeatures
from rankscope.architectures.classifiers.train_step import contract_train
from rankscope.architectures.sizes import require_sizes
from rankscope.architectures.tensor_train import TensorTrain
from rankscope.diagrams.diagram import Diagram


class TrainClassifier(TensorNetworkClassifier):
    r"""A state that every patch multiplies by a matrix linear in its features.

    .. math:: h_1 = G_1^T f(x_1), \qquad h_t = \sum_i f_i(x_t)\, G_t[:, i, :]^T h_{t-1}, \qquad
              s_y = \sum_{l,i} h_{d-1,l} f_i(x_d)\, G_d[l, i, y]

    Args:
        features: of the patches, at least three; their first one is 1.
        bond: size of the state.
        num_classes: how many scores there are.
        has_equal_cores: whether all cores but the first and the last are the same one.
        generator: where the initial cores come from: the constant feature leaves the state as it
            is, and all others together change it by about its own size over the whole train.

    Example:
        >>> features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=5)
        >>> TrainClassifier(features, bond=3, num_classes=10)(torch.ones(7, 1, 8, 8)).shape
        torch.Size([7, 10])

    Raises:
        SizeError: if a size is not positive, or there are fewer than three patches.

    Reference:
        Khrulkov et al. (2018), arXiv:1711.00811; Alkin (2024) for equal cores.
    """

    def __init__(
        self,
        features: PatchFeatures,
        *,
        bond: int,
        num_classes: int,
        has_equal_cores: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        order, size = features.num_patches, features.num_features
        require_sizes("TrainClassifier", least=3, num_patches=order)
        require_sizes("TrainClassifier", bond=bond, num_classes=num_classes)
        self.features, self.num_classes = features, num_classes
        self.bond, self.has_equal_cores = bond, has_equal_cores

        def noise(*shape: int) -> Tensor:
            # A step changes the state by one part in √order, or in order where all are the same.
            parts = order if has_equal_cores else math.sqrt(order)
            return torch.randn(shape, generator=generator) / math.sqrt(size) / parts

        inner = noise(1 if has_equal_cores else order - 2, bond, size, bond) / math.sqrt(bond)
        inner[:, :, 0] += torch.eye(bond)
        first = noise(size, bond)
        first[0] += 1.0
        self.first = nn.Parameter(first)
        self.inner = nn.Parameter(inner)
        self.last = nn.Parameter(noise(bond, size, num_classes) / math.sqrt(bond))

    def contract(self, features: Tensor) -> Scores:
        """The scores of features (patches, batch, features)."""
        state, log_scale = contract_train(features[0] @ self.first, features[1:-1], self.inner)
        outer = state[:, :, None] * features[-1][:, None, :]
        return Scores.of(outer.flatten(1) @ self.last.flatten(0, 1), log_scale)

    def score_network(self, label: int) -> TensorTrain:
        """The score of one class, with a copy of the weights.

        Raises:
            SizeError: if there is no such class.
        """
        self.require_label(label)
        train = TensorTrain(
            order=self.features.num_patches,
            size=self.features.num_features,
            bond=self.bond,
            has_equal_cores=self.has_equal_cores,
        ).to(self.first)
        cores = (self.first[None], *self.inner, self.last[:, :, label, None])
        with torch.no_grad():
            for kept, core in zip(train.cores, cores, strict=True):
                kept.copy_(core)
        return train

    def diagram(self) -> Diagram:
        """The train; its last core also holds the classes."""
        train = self.score_network(0).diagram()
        cores, inputs = (
            train.nodes[: self.features.num_patches],
            train.nodes[len(train.nodes) // 2 :],
        )
        inner = [
            replace(core, array="inner", rows=(0, 1) if self.has_equal_cores else (t, t + 1))
            for t, core in enumerate(cores[1:-1])
        ]
        nodes = (
            replace(cores[0], array="first"),
            *inner,
            replace(cores[-1], array="last"),
            *inputs,
        )
        return with_classes(replace(train, nodes=nodes), cores[-1].name, self.num_classes)
