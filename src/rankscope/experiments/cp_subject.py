"""What is trained in experiments on generalization: a small network, plain or with CP layers."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from rankscope.architectures.models.cp_networks import with_cp_layers
from rankscope.errors import ExperimentError
from rankscope.seeds import seed_of
from rankscope.training.augmentation import Augmentation, PadCropFlip
from rankscope.training.batches import TensorData
from rankscope.training.datasets import DataSet, load_data_set

_SMALLEST_SIDE = 3  # images are not pooled to less
_DROPOUT = 0.5
# Digits change their meaning when they are flipped.
_AUGMENTATIONS: dict[str, Augmentation] = {"fashion-mnist": PadCropFlip(), "cifar10": PadCropFlip()}


@dataclass(frozen=True)
class CPSubject:
    """A network and the samples that it is trained on.

    Args:
        data_set: its name.
        num_samples: of the training set, the first ones; None for all.
        is_cp: whether all layers but the first and the last are CP layers, drawn in that form at
            the rank that has as many parameters.
        width: channels of the first layer.
        is_regularized: dropout before the last layer, and shifted and flipped images where that
            keeps their meaning.
    """

    data_set: str
    num_samples: int | None = None
    is_cp: bool = True
    width: int = 16
    is_regularized: bool = False

    @property
    def name(self) -> str:
        """Of the data set and the form."""
        return f"{self.data_set}-{self.form}"

    @property
    def form(self) -> str:
        """Of the layers."""
        return "cp" if self.is_cp else "plain"

    def data(self, folder: Path | None) -> DataSet:
        """The samples; augmented only if the subject is regularized.

        Raises:
            ExperimentError: if the data set has fewer samples.
            DataError: if it is not there.
        """
        found = load_data_set(self.data_set, folder)
        wanted = len(found.train) if self.num_samples is None else self.num_samples
        if wanted > len(found.train):
            raise ExperimentError(
                f"{self.name}: {self.data_set} has {len(found.train):,} training samples, but "
                f"{wanted:,} are wanted."
            )
        augment = _AUGMENTATIONS.get(self.data_set) if self.is_regularized else None
        return replace(found, train=replace(found.train.head(wanted), augment=augment))

    def network(self, data: DataSet, seed: int) -> nn.Module:
        """A fresh network for these samples."""
        image = tuple(data.train.inputs.shape[1:])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("weights", seed))
            dropout = _DROPOUT if self.is_regularized else 0.0
            model = small_network(image, data.num_classes, width=self.width, dropout=dropout)
        return with_cp_layers(model, seed=seed) if self.is_cp else model


def small_network(
    image: tuple[int, ...],
    num_classes: int,
    *,
    width: int,
    dropout: float = 0.0,
    has_bias: bool = True,
) -> nn.Sequential:
    """Three convolutions of 3 x 3 and a linear map, with ReLU; a chain without normalizations.

    Images are halved after each convolution as long as 3 x 3 places are left.

    Args:
        image: channels, rows and columns.
        num_classes: length of the output.
        width: channels of the first convolution; the others have twice as many.
        dropout: before the linear map.
        has_bias: whether layers add one.

    Example:
        >>> network = small_network((3, 32, 32), 10, width=16)
        >>> sum(weight.numel() for weight in network.parameters())
        19466
    """
    channels, *sides = image
    layers: list[nn.Module] = []
    for outputs in (width, 2 * width, 2 * width):
        convolution = nn.Conv2d(channels, outputs, 3, padding=1, bias=has_bias)
        # The variance that CP layers start with too; otherwise these would learn faster.
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        if convolution.bias is not None:
            nn.init.zeros_(convolution.bias)
        layers += [convolution, nn.ReLU()]
        channels = outputs
        if min(sides) // 2 >= _SMALLEST_SIDE:
            layers.append(nn.MaxPool2d(2))
            sides = [side // 2 for side in sides]
    layers.append(nn.Flatten())
    if dropout:
        layers.append(nn.Dropout(dropout))
    features = channels * sides[0] * sides[1]
    return nn.Sequential(*layers, nn.Linear(features, num_classes, bias=has_bias))


def inputs_and_labels(data: TensorData) -> tuple[torch.Tensor, torch.Tensor]:
    """All samples as a network takes them, without augmentation."""
    (batch,) = data.batches(len(data))
    assert batch.targets is not None, "every data set of an experiment has labels"
    return batch.inputs.contiguous(), batch.targets
