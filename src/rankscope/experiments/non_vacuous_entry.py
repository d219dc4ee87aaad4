"""One row of `non-vacuous-bound`: a network in few bits, trained as such, with a true bound."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from rankscope.architectures.models.cp_networks import with_cp_layers
from rankscope.experiments.classifier_entry import percent_right
from rankscope.experiments.cp_subject import CPSubject, small_network
from rankscope.experiments.experiment import Entry, Row, Workplace
from rankscope.generalization.finite_class import (
    Chernoff,
    Hoeffding,
    QuantizedCrossEntropy,
    fixed_scales,
    quantize_network,
    rigorous_bound,
)
from rankscope.layers.cp_layers import matched_rank
from rankscope.layers.formats.format import WeightShape
from rankscope.training.batches import seed_of
from rankscope.training.datasets import DataSet
from rankscope.training.loop import fit
from rankscope.training.recipe import Recipe

NUM_SETTINGS = 100  # more than were ever tried, seeds and trials by hand included
CHANCE = 0.05
_LARGE_SIDE = 16  # images of more are halved first, which costs no parameter


@dataclass(frozen=True)
class NonVacuousEntry(Entry):
    """Train a network of codes times fixed scales, and bound its error by Chernoff's bound.

    Args:
        data_set: its name; all of its training samples are used.
        width: channels of the first layer.
        bits: of a weight.
        recipe: its seed is that of the entry.
        rank_share: of the rank that has as many parameters as the dense layer.
        seed: of everything.
    """

    data_set: str
    width: int
    bits: int
    recipe: Recipe
    rank_share: float = 0.5
    seed: int = 0

    @property
    def name(self) -> str:
        """Data set, width and bits."""
        return f"{self.data_set}-width-{self.width}-bits-{self.bits}"

    def network(self, data: DataSet) -> nn.Module:
        """Before it is trained: convolutions in CP form but for the first, and no biases."""
        channels, *sides = data.train.inputs.shape[1:]
        is_large = min(sides) > _LARGE_SIDE
        image = (channels, *(side // 2 if is_large else side for side in sides))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of("weights", self.seed))
            chain = small_network(image, data.num_classes, width=self.width, has_bias=False)
        halving = [nn.AvgPool2d(2)] if is_large else []
        return with_cp_layers(nn.Sequential(*halving, *chain), rank=self._rank, seed=self.seed)

    def _rank(self, shape: WeightShape) -> int:
        return max(1, int(self.rank_share * matched_rank(shape)))

    def run(self, place: Workplace) -> Row:
        """The bound, what it is made of, and the test error beside it."""
        data = CPSubject(self.data_set).data(place.data)
        model = self.network(data)
        quantization = fixed_scales(model, bits=self.bits)
        fit(
            model,
            QuantizedCrossEntropy(quantization),
            data.train,
            replace(self.recipe, seed=self.seed),
            folder=place.folder / "training",
            progress=place.report,
        )
        network = quantize_network(model, quantization)
        size = len(data.train)
        empirical = 1 - percent_right(network.model, data.train) / 100
        bounds = [
            rigorous_bound(
                network,
                empirical,
                size,
                num_settings=NUM_SETTINGS,
                chance=CHANCE,
                concentration=concentration,
            )
            for concentration in (Chernoff(), Hoeffding())
        ]
        return {
            "data": self.data_set,
            "samples": size,
            "parameters": network.num_parameters,
            "bits": self.bits,
            "nats": network.log_size,
            "train error": empirical,
            "bound": bounds[0].value,
            "bound (Hoeffding)": bounds[1].value,
            "test error": 1 - percent_right(network.model, data.test) / 100,
            "group": f"{self.data_set}, {self.bits} bits",
        }
