"""`bound-vs-test-error` and `non-vacuous-bound`: what bounds say of networks that were trained."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import nn

from rankscope.compression.training.loop import EveryFewEpochs, fit
from rankscope.compression.training.recipe import Cosine, Recipe, Record
from rankscope.factorize.cp_layers import matched_rank
from rankscope.factorize.formats.format import WeightShape
from rankscope.generalize.analysis import Options, TrackBounds, usual_searches
from rankscope.generalize.finite_class import (
    Chernoff,
    Hoeffding,
    QuantizedCrossEntropy,
    fixed_scales,
    quantize_network,
    rigorous_bound,
)
from rankscope.generalize.sample import Sample
from rankscope.lab.experiments.claims import Claims, Statement, Verdict
from rankscope.lab.experiments.classifiers import percent_right
from rankscope.lab.experiments.cp_networks import (
    ResNetWorkload,
    TrainingWorkload,
    WorkloadTraining,
    inputs_and_labels,
    small_network,
)
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_curves import CurveFigure
from rankscope.lab.experiments.figure_lines import LineFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.statements import correlation_statement
from rankscope.lab.experiments.table import partial_correlation
from rankscope.lab.experiments.wording import worded
from rankscope.networks.cp_networks import with_cp_layers
from rankscope.networks.datasets import DataSet
from rankscope.seeds import seed_of

# One row of `bound-vs-test-error`: bounds and the test error of a network while it is trained.


BOUNDS = ("triangle", "exact", "measured", "arora-order")
TEST_ERROR, MARGIN_LOSS = "test error", "margin loss"


@dataclass(frozen=True)
class BoundEntry(Entry):
    """Train a workload, and measure its bounds every few epochs.

    Args:
        setting: name of the row.
        workload: the network and its samples.
        recipe: its seed is that of the entry.
        margin: γ of all bounds.
        every: epochs from one measurement to the next.
        noise: share of the training labels replaced by uniform draws.
        searches: of ranks, whose bounds are compared.
        seed: of everything.
    """

    has_checkpoints: ClassVar[bool] = True

    setting: str
    workload: TrainingWorkload
    recipe: Recipe
    margin: float = 1.0
    every: int = 4
    noise: float = 0.0
    searches: Mapping[str, Options] = field(default_factory=usual_searches)
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the setting."""
        return self.setting

    def run(self, context: RunContext) -> Row:
        """The last measurement, correlations over all of them, and their curves."""
        data = self.workload.data(context.data)
        training = WorkloadTraining(self.workload, self.recipe, self.noise, self.seed)
        samples = training.samples(data)
        sample, test = (Sample(*inputs_and_labels(part)) for part in (samples, data.test))
        track = TrackBounds(sample, test, self.margin, self.searches)
        trained = training.run(
            context, data, samples=samples, evaluate=EveryFewEpochs(track, self.every)
        )
        measured = [record for record in trained.history.records if record.metrics]
        last = measured[-1].metrics
        row: Row = {
            "samples": len(sample),
            "parameters": sum(weight.numel() for weight in trained.model.parameters()),
            "margin": self.margin,
            "train error": last["train error"],
            MARGIN_LOSS: last[MARGIN_LOSS],
            TEST_ERROR: last[TEST_ERROR],
            "spectral-order": _finite(last.get("spectral-order")),
        }
        for name in (name for name in BOUNDS if name in last):
            row[name] = _finite(last[name])
            row[f"{name} kept"] = last.get(f"{name} parameters")
        if "arora-order" in last:
            row["arora over triangle"] = _finite(last["arora-order"] / last["triangle"])
        return {**row, **_correlations(measured), **_curves(measured)}


def _curves(records: Sequence[Record]) -> Row:
    """Every quantity over the measurements; None where one of them was infinite."""
    results: Row = {"epochs": [float(record.epoch) for record in records]}
    for name in records[0].metrics:
        values = [record.metrics[name] for record in records]
        is_finite = all(math.isfinite(value) for value in values)
        results[f"{name} curve"] = values if is_finite else None
    return results


def _correlations(records: Sequence[Record]) -> Row:
    """Rank correlation of each bound with the test error over the measurements of this run."""
    errors = [record.metrics[TEST_ERROR] for record in records]
    results: Row = {}
    for name in (name for name in BOUNDS if name in records[0].metrics):
        values = [record.metrics[name] for record in records]
        if all(math.isfinite(value) for value in values):
            results[f"{name} correlation"] = partial_correlation(values, errors, []).value
    return results


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# `bound-vs-test-error`: does a bound from compression follow the test error during training?


_RECIPE = Recipe(epochs=48, batch_size=64, learning_rate=2e-3, schedule=Cosine())
# Without it, every component of these networks is needed, and no complexity ever changes.
_DECAYING = replace(_RECIPE, weight_decay=3.0)
_DIGITS = TrainingWorkload("digits")
_FASHION, _CIFAR10 = (TrainingWorkload(name, 2_000) for name in ("fashion-mnist", "cifar10"))
_PROVED = {name: usual_searches()[name] for name in ("triangle", "exact")}
# Others' bounds are for chains only; one measurement takes a minute.
_RESNET = BoundEntry(
    "cifar10-resnet20-cp-decay-3",
    ResNetWorkload("cifar10", 2_000),
    _DECAYING,
    every=8,
    searches=_PROVED,
)


def _follows(rows: Sequence[Row]) -> list[Statement]:
    """The rank correlation of each bound with the test error over the epochs of a run, by seeds.

    The training loss is a part of every bound, so a bound has to follow more closely than it does.
    """
    results: dict[str, list[Statement]] = {}
    for setting in dict.fromkeys(str(row["setting"]) for row in rows):
        for name, whose in _FOLLOWING.items():
            column = f"{name} correlation"
            own = [row for row in rows if row["setting"] == setting and column in row]
            if own:
                results.setdefault(name, []).append(
                    correlation_statement(
                        f"{_TITLES.get(setting, setting)}: correlation of {whose} bound with the "
                        "test error",
                        [float(str(row[column])) for row in own],
                        [_correlation(row, f"{MARGIN_LOSS} curve") for row in own],
                        "that of the training loss",
                        is_claimed=name == _OURS,
                    )
                )
    ours = [one.is_as_claimed for one in results.get(_OURS, ())]
    answer = f"in {ours.count(True)} of {len(ours)} settings; against it in {ours.count(False)}"
    return [
        *(one for statements in results.values() for one in statements),
        Statement(_ANSWER, Verdict.FACT, answer),
    ]


def _correlation(row: Row, curve: str) -> float:
    """Rank correlation of a curve with that of the test error."""
    values, errors = row[curve], row[f"{TEST_ERROR} curve"]
    assert isinstance(values, list), "rows of BoundEntry hold curves"
    assert isinstance(errors, list), "and that of the test error"
    return partial_correlation(values, errors, []).value


_ANSWER = "Our bound follows the test error during training more closely than the training loss"
_TITLES = {
    "digits": "Digits",
    "digits-margin-5": "Digits, margin 5",
    "digits-decay-3": "Digits, weight decay 3",
    "digits-decay-6": "Digits, weight decay 6",
    "digits-noise-0.4": "Digits, 40 % random labels",
    "fashion-mnist-decay-3": "Fashion-MNIST, weight decay 3",
    "cifar10-decay-3": "CIFAR-10, weight decay 3",
    _RESNET.setting: "CIFAR-10, ResNet-20, weight decay 3",
}
_OURS = "triangle"
_FOLLOWING = {_OURS: "our triangle", "arora-order": "Arora's"}


BOUND_VS_TEST_ERROR = Experiment(
    name="bound-vs-test-error",
    title="Bounds without constants beside the test error, after the last epoch",
    entries=(
        BoundEntry("digits", _DIGITS, _RECIPE),
        BoundEntry("digits-margin-5", _DIGITS, _RECIPE, margin=5.0),
        BoundEntry("digits-decay-3", _DIGITS, _DECAYING),
        BoundEntry("digits-decay-6", _DIGITS, replace(_RECIPE, weight_decay=6.0)),
        BoundEntry("digits-noise-0.4", _DIGITS, _RECIPE, noise=0.4),
        BoundEntry("fashion-mnist-decay-3", _FASHION, _DECAYING, searches=_PROVED),
        BoundEntry("cifar10-decay-3", _CIFAR10, _DECAYING, searches=_PROVED),
        _RESNET,
    ),
    quick=(
        BoundEntry(
            "digits",
            replace(_DIGITS, num_samples=400, width=8),
            replace(_RECIPE, epochs=10),
            every=2,
        ),
    ),
    seconds=1800.0,
    seeds=3,
    columns=(
        "test error",
        "train error",
        "margin loss",
        "triangle",
        "exact",
        "measured",
        "arora-order",
        "triangle correlation",
        "exact correlation",
        "measured correlation",
    ),
    figure=CurveFigure(
        tuple(f"{name} curve" for name in (TEST_ERROR, MARGIN_LOSS, *BOUNDS)),
        ("epoch", "error, and bounds up to constants"),
        across="epochs",
        is_logarithmic=True,
        panels=tuple(Panel(title, setting) for setting, title in _TITLES.items()),
        labels={
            "test error curve": "test error",
            "margin loss curve": "training loss",
            "triangle curve": "ours, triangle form",
            "exact curve": "ours, exact form",
            "measured curve": "ours, measured form",
            "arora-order curve": "Arora et al.",
        },
    ),
    claims=Claims(
        "Does the bound follow the test error during training?",
        facts=_follows,
        answer=_ANSWER,
        hypothesis="The bound falls and rises with the test error over the epochs of a run (Huang "
        "2021).",
    ),
    needs="FashionMNIST/raw and cifar-10-batches-bin",
    protocol=(
        "Three convolutions of 16, 32 and 32 channels and a linear map, the two in the middle in "
        "CP form at the rank with as many parameters as plain ones; Adam from 2e-3 to 0 along a "
        "cosine, batches of 64, 48 epochs, on 1,437 digits or the first 2,000 images of "
        "Fashion-MNIST and CIFAR-10, no augmentation, without weight decay or with a "
        "decoupled one of 3 or 6, which makes components die out. Every 4 epochs, on the "
        "whole training sample at a fixed margin: ranks by the direct search in the triangle "
        "and the exact form, and (digits) the smallest that keep the margin on the sample; "
        "the order L_margin + sqrt(parameters kept / samples); the bound of Arora et al. without "
        "constants at the same margin, Jacobians on 16 samples; the error on the whole test set. "
        "resnet20-cp: ResNet-20 with all convolutions but the first in CP form, measured every 8 "
        "epochs; bounds that are proved for chains are left out. "
        "With noise, the bounds are for noisy labels, and the test error is that on true ones. "
        "The columns named correlation have one value for each seed."
    ),
)


# One row of `non-vacuous-bound`: a network in few bits, trained as such, with a true bound.


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

    has_checkpoints: ClassVar[bool] = True

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
        """The untrained network: convolutions in CP form but for the first, and no biases."""
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

    def run(self, context: RunContext) -> Row:
        """The bound, what it is made of, and the test error beside it."""
        data = TrainingWorkload(self.data_set).data(context.data)
        model = self.network(data)
        quantization = fixed_scales(model, bits=self.bits)
        fit(
            model,
            QuantizedCrossEntropy(quantization),
            data.train,
            replace(self.recipe, seed=self.seed),
            folder=context.folder / "training",
            progress=context.report,
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


# `non-vacuous-bound`: how large can a network be, for a bound below one half that really holds?


WANTED = 0.5
_QUANTIZED_RECIPE = Recipe(epochs=4, batch_size=128, learning_rate=5e-3, schedule=Cosine())
_SETTINGS = (
    ("mnist", 16, 2),
    ("mnist", 16, 4),
    ("mnist", 24, 2),
    ("mnist", 32, 2),
    ("mnist", 40, 2),
    ("fashion-mnist", 16, 2),
    ("fashion-mnist", 16, 3),
    ("fashion-mnist", 24, 2),
    ("cifar10", 16, 2),
)


def largest(rows: Sequence[Row]) -> list[Row]:
    """The setting with most parameters and all bounds below one half, for each data set."""
    results: list[Row] = []
    for data in dict.fromkeys(row["data"] for row in rows):
        settings: dict[str, list[Row]] = {}
        for row in (row for row in rows if row["data"] == data):
            settings.setdefault(str(row["setting"]), []).append(row)
        below = [own for own in settings.values() if _worst(own) < WANTED]
        chosen = max(below, key=lambda own: float(str(own[0]["parameters"])), default=None)
        results.append(_describe_row(data, chosen))
    return results


def _held(rows: Sequence[Row]) -> list[Statement]:
    """How large a network may be for a bound below one half on every seed, and whether all hold."""
    results = []
    for row in largest(rows):
        if row["largest below 0.5"] == "none":
            least = min(float(str(one["bound"])) for one in rows if one["data"] == row["of"])
            detail = f"none of the settings tried; the least bound is {least:.2g}"
        else:
            detail = (
                f"{int(str(row['its parameters'])):,} weights ({row['largest below 0.5']}), error "
                f"proved to be at most {float(str(row['largest bound of its seeds'])):.3f}, "
                f"at most {float(str(row['largest test error'])):.3f} on test samples"
            )
        subject = (
            f"{worded(str(row['of']))}: largest network with a bound below one half on every seed"
        )
        results.append(Statement(subject, Verdict.FACT, detail))
    held = sum(float(str(row["bound"])) >= float(str(row["test error"])) for row in rows)
    results.append(Statement("The bound held", Verdict.FACT, f"in {held} of {len(rows)} runs"))
    return results


def _describe_row(data: object, chosen: list[Row] | None) -> Row:
    if chosen is None:
        return {"of": str(data), "largest below 0.5": "none"}
    errors = [float(str(row["test error"])) for row in chosen]
    return {
        "of": str(data),
        "largest below 0.5": str(chosen[0]["setting"]),
        "its parameters": chosen[0]["parameters"],
        "largest bound of its seeds": _worst(chosen),
        "largest test error": max(errors),
    }


def _worst(rows: Sequence[Row]) -> float:
    return max(float(str(row["bound"])) for row in rows)


NON_VACUOUS_BOUND = Experiment(
    name="non-vacuous-bound",
    title="A bound on the error that holds with probability 0.95, beside the test error",
    entries=tuple(
        NonVacuousEntry(data_set, width, bits, _QUANTIZED_RECIPE)
        for data_set, width, bits in _SETTINGS
    ),
    quick=(
        NonVacuousEntry("digits", 4, 2, replace(_QUANTIZED_RECIPE, epochs=12, batch_size=32)),
        NonVacuousEntry("digits", 8, 2, replace(_QUANTIZED_RECIPE, epochs=12, batch_size=32)),
    ),
    seconds=1800.0,
    seeds=3,
    figure=LineFigure(
        "parameters",
        "bound",
        "group",
        labels={"bound": "bound on the test error (probability 0.95)"}
        | {
            f"{data_set}, {bits} bits": f"{worded(data_set)}, {bits} bits"
            for data_set, _, bits in _SETTINGS
        },
    ),
    summary=largest,
    claims=Claims(
        "How large may a network be for a bound on its error that says something?", facts=_held
    ),
    needs="MNIST/raw, FashionMNIST/raw and cifar-10-batches-bin",
    protocol=(
        "Images are averaged over 2 x 2 pixels; three convolutions of w, 2w and 2w channels "
        "and a linear map, ReLU, no biases, the second and third convolution in CP form at half "
        "the rank with as many parameters. All weights are codes times scales: 3 codes at 2 "
        "bits, 7 at 3, 15 at 4; scales suit the random initial weights, and so are fixed before "
        "any sample is seen. Trained straight through the rounding, with Adam from 5e-3 to 0 "
        "along a cosine, batches of 128, 4 epochs over all training images. The bound (Chernoff "
        "with relative entropy, and a union over all networks that the codes can describe) "
        "counts the weights, 100 settings tried, and a chance of 0.05; Hoeffding's is shown "
        "beside it."
    ),
)
