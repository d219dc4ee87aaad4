"""`cp-properties`: what the search for ranks says of the source's networks, before training.

VGG-16 and WideResNet-28-10 are built with CP layers and measured; to train them takes days here.
"""

import math
from dataclasses import dataclass

import torch

from rankscope.architectures.models.catalogue import build
from rankscope.experiments.cp_subject import inputs_and_labels
from rankscope.experiments.dot_figure import DotFigure
from rankscope.experiments.experiment import Entry, Experiment, Row, Workplace
from rankscope.generalization.analysis import Options, analyse
from rankscope.generalization.sample import Sample
from rankscope.training.datasets import load_data_set


@dataclass(frozen=True)
class PropertiesEntry(Entry):
    """Measure an untrained network with CP layers.

    Args:
        network: a built-in one; the same without `cp-` is its plain twin.
        data_set: whose training images it is run on.
        num_samples: how many of them.
        margin: γ.
    """

    network: str
    data_set: str
    num_samples: int
    margin: float = 1.0

    @property
    def name(self) -> str:
        """That of the network."""
        return self.network

    def run(self, place: Workplace) -> Row:
        """Parameters, ranks and the properties of layers, put together."""
        data = load_data_set(self.data_set, place.data).train.head(self.num_samples)
        sample = Sample(*inputs_and_labels(data))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model, twin = build(self.network), build(self.network.removeprefix("cp-"))
        options = Options(num_jacobians=0)
        found = analyse(model, sample, self.margin, options=options, report=place.report)
        layers = found.choice.layers
        factors = [layer.factor for layer in layers]
        return {
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "plain parameters": sum(weight.numel() for weight in twin.parameters()),
            "samples": len(sample),
            "layers": len(layers),
            "components": sum(layer.rank for layer in layers),
            "components kept": sum(layer.kept_rank for layer in layers),
            "log10 of the product of t": math.fsum(map(math.log10, factors)),
            "smallest cushion": min(found.cushions),
            "parameters kept": dict(found.bound("compression-order").constants)["parameters"],
            "t": factors,
            "cushions": list(found.cushions),
        }


CP_PROPERTIES = Experiment(
    name="cp-properties",
    title="Untrained networks with CP layers: ranks that keep a margin of 1",
    entries=(
        PropertiesEntry("cp-resnet20", "cifar10", 100),
        PropertiesEntry("cp-vgg16-bn", "cifar10", 100),
        PropertiesEntry("cp-wide-resnet-28-10", "cifar10", 10),
    ),
    quick=(PropertiesEntry("cp-digits", "digits", 100),),
    seconds=900.0,
    needs="cifar-10-batches-bin",
    protocol=(
        "Networks as they start, convolutions but the first in CP form at the rank with as many "
        "parameters; properties in the triangle form on the first training images, ranks by the "
        "direct search at margin 1. Nothing is trained."
    ),
    figure=DotFigure(("log10 of the product of t",)),
)
