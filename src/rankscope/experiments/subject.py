"""Trained networks that experiments compress, each with its data and its stages."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from rankscope.architectures.models.catalogue import build_trained
from rankscope.training.batches import TensorData
from rankscope.training.datasets import DataSet, load_data_set
from rankscope.training.scoring.classification import accuracy


@dataclass(frozen=True)
class Subject:
    """A trained network, the data it was trained on, and the stages it is repaired by.

    Args:
        network: name of a built-in network.
        data_set: name of its data set.
        stages: names of modules in the order in which they run; all convolutions inside of them
            are compressed, nothing else.
    """

    network: str
    data_set: str
    stages: tuple[str, ...]

    def build(self, data: Path | None) -> nn.Module:
        """The trained network, in inference mode, in the memory order that is fast on CPUs.

        Raises:
            DataError: if its weights are not there; the message says how to get them.
        """
        model = build_trained(self.network, data=data)
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def load(self, data: Path | None) -> DataSet:
        """Its data.

        Raises:
            DataError: if they are not there; the message says how to get them.
        """
        return load_data_set(self.data_set, data)

    def convolutions(self, model: nn.Module) -> dict[str, nn.Conv2d]:
        """What is compressed, by name."""
        return {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, nn.Conv2d)
            and any(name == stage or name.startswith(f"{stage}.") for stage in self.stages)
        }


def score(model: nn.Module, data: TensorData) -> float:
    """The accuracy of a classifier in percent, to two digits, as tables are printed."""
    batch = data.batches(len(data))[0]
    assert batch.targets is not None, "every data set of an experiment has labels"
    return round(100 * accuracy(model, batch.inputs, batch.targets), 2)


RESNET32 = Subject("resnet32", "cifar10", ("layer1", "layer2", "layer3"))
DIGITS = Subject("digits", "digits", ("conv2", "conv3"))
