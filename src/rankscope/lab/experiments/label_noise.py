"""`label-noise` and `label-noise-cifar10`: networks that learn wrong labels by heart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from rankscope.compression.training.loop import EveryFewEpochs
from rankscope.compression.training.recipe import Cosine, MixedPrecision, Recipe, StopAt
from rankscope.factorize.layer import FactorizedLayer
from rankscope.generalize.bounds import measure_rademacher, rademacher_bound
from rankscope.generalize.compressed_network import outputs_of
from rankscope.lab.experiments.baselines import (
    BaselineEntry,
    class_baselines,
    fitted_regression,
    flat,
)
from rankscope.lab.experiments.claims import Claims, Pair, Score, Statement, Verdict
from rankscope.lab.experiments.classifiers import percent_right
from rankscope.lab.experiments.cp_networks import (
    ResNetWorkload,
    Trained,
    TrainingWorkload,
    WorkloadTraining,
)
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_lines import LineFigure
from rankscope.lab.experiments.figure_parts import Panel
from rankscope.lab.experiments.table import Interval
from rankscope.lab.experiments.wording import worded
from rankscope.networks.batches import TensorData
from rankscope.networks.datasets import DataSet

MEMORIZED = 99.9  # percent of the training labels, right and wrong
_SCORE = "train accuracy"
_COMPONENTS = "components for 90 %"


@dataclass(frozen=True)
class LabelNoiseEntry(Entry):
    """Train on partly random labels until they are known by heart, then score on true ones.

    Args:
        workload: the network and its samples.
        noise: share of labels replaced by uniform draws from all classes.
        recipe: its epochs are the most that are run.
        seed: of everything, the noise included.
    """

    has_checkpoints: ClassVar[bool] = True

    workload: TrainingWorkload
    noise: float
    recipe: Recipe
    seed: int = 0

    @property
    def name(self) -> str:
        """CompressionWorkload, regularizers and noise."""
        return f"{self.workload.name}{_suffix(self.workload)}-noise-{self.noise:g}"

    def run(self, context: RunContext) -> Row:
        """Accuracies in percent of the last epoch: there is no choice of a better one."""
        data = self.workload.data(context.data)
        training = WorkloadTraining(self.workload, _until(self.recipe), self.noise, self.seed)
        trained = _train_to_memorize(training, context, data, training.samples(data))
        train = trained.accuracy(trained.train)
        return {
            "network": f"{self.workload.name}{_suffix(self.workload)}",
            "samples": len(trained.train),
            "parameters": sum(weight.numel() for weight in trained.model.parameters()),
            "noise": self.noise,
            "epochs": len(trained.history.records),
            "ended by": "memorization" if train >= MEMORIZED else "epoch limit",
            "train accuracy": train,
            "test accuracy": trained.accuracy(data.test),
            **component_spectra(trained.model),
        }


def component_spectra(model: nn.Module) -> Row:
    """Of the CP layers of a network: which share of the components holds 90 % of the squares.

    Components are counted from the largest; the shares of all layers are averaged. Empty for a
    network without such layers.
    """
    shares = []
    for module in model.modules():
        if isinstance(module, FactorizedLayer):
            squares = module.normalized().weights.detach().double().square()
            kept = int((squares.cumsum(0) < 0.9 * squares.sum()).sum()) + 1
            shares.append(kept / len(squares))
    if not shares:
        return {}
    return {_COMPONENTS: sum(shares) / len(shares), "components by layer": shares}


def spectrum_facts(rows: Sequence[Row]) -> list[Statement]:
    """How many components of the trained CP layers matter, at every share of wrong labels."""
    parts = []
    for noise in sorted({float(str(row["noise"])) for row in rows if row.get(_COMPONENTS)}):
        shares = [
            float(str(row[_COMPONENTS]))
            for row in rows
            if row.get(_COMPONENTS) and row["noise"] == noise
        ]
        mean = Interval.of(shares, seeds=len(shares)) if len(shares) > 1 else f"{shares[0]:.4g}"
        parts.append(f"{mean} with {noise:g} of the labels random")
    if not parts:
        return []
    subject = "Share of the components of trained CP layers that holds 90 % of their squares"
    return [Statement(subject, Verdict.FACT, ", ".join(parts))]


@dataclass(frozen=True)
class NoisyBaseline(BaselineEntry):
    """Logistic regression on the same partly random labels.

    Args:
        workload: the samples; its network is not used.
        noise: share of labels replaced by uniform draws from all classes, as seed 0 draws them.
    """

    workload: TrainingWorkload
    noise: float

    @property
    def kind(self) -> str:
        """The data set, the method and the noise."""
        return f"{self.workload.data_set}-logistic-regression-noise-{self.noise:g}"

    def score(self, context: RunContext) -> Row:
        """The accuracy on true labels, in percent."""
        data = self.workload.data(context.data)
        samples = WorkloadTraining(self.workload, _RECIPE, self.noise).samples(data)
        model = fitted_regression(*flat(samples), data.num_classes)
        inputs, labels = flat(data.test)
        right = 100 * float((model(inputs).argmax(dim=1) == labels).double().mean())
        return {"noise": self.noise, "test accuracy": right}


def _score(data_set: str, noise: float) -> Score:
    """What is compared, beside logistic regression on the same labels."""
    baseline = f"baseline-{data_set}-logistic-regression-noise-{noise:g}"
    return Score("test accuracy", "points", is_lower_better=False, baseline=baseline)


@dataclass(frozen=True)
class RademacherEntry(Entry):
    """Measure the empirical Rademacher complexity: how well random signs are fitted.

    Args:
        workload: the network and its samples.
        recipe: its epochs are the most that are run.
        seed: of the signs and of everything else.
    """

    has_checkpoints: ClassVar[bool] = True

    workload: TrainingWorkload
    recipe: Recipe
    seed: int = 0

    @property
    def name(self) -> str:
        """CompressionWorkload, regularizers, and what is measured."""
        return f"{self.workload.name}{_suffix(self.workload)}-rademacher"

    def run(self, context: RunContext) -> Row:
        """The complexity found, its maximum, and the bound for a network that fits its sample."""
        data = self.workload.data(context.data)
        training = WorkloadTraining(self.workload, _until(self.recipe), seed=self.seed)
        labels = data.train.targets
        assert labels is not None, "every data set of an experiment has labels"

        def predictions(targets: Tensor) -> Tensor:
            trained = _train_to_memorize(
                training, context, data, replace(data.train, targets=targets)
            )
            (batch,) = trained.train.batches(len(trained.train))
            return outputs_of(trained.model, batch.inputs).argmax(dim=1)

        result = measure_rademacher(predictions, labels, data.num_classes, seed=self.seed)
        return {
            "network": f"{self.workload.name}{_suffix(self.workload)}",
            "samples": len(labels),
            "Rademacher complexity": result.value,
            "its maximum": result.maximum,
            "Rademacher bound": rademacher_bound(result, 0.0, len(labels)).value,
        }


def _train_to_memorize(
    training: WorkloadTraining, context: RunContext, data: DataSet, samples: TensorData
) -> Trained:
    plain = replace(samples, augment=None)

    def score(model: nn.Module) -> dict[str, float]:
        return {_SCORE: percent_right(model, plain)}

    return training.run(context, data, samples=samples, evaluate=EveryFewEpochs(score, 2))


def _until(recipe: Recipe) -> Recipe:
    return replace(recipe, early_stop=StopAt(_SCORE, MEMORIZED))


def _suffix(workload: TrainingWorkload) -> str:
    return "-regularized" if workload.is_regularized else ""


# `label-noise`: what is left of a network that has learned wrong labels by heart.
#
# The source trains VGG-16 on CIFAR-10 with random labels on a share of the training set until
# convergence, and finds that CP layers keep more accuracy on true labels.


NOISES = (0.2, 0.4, 0.6, 0.8, 1.0)
_RECIPE = Recipe(epochs=80, batch_size=32, learning_rate=2e-3, schedule=Cosine())
_NUM_NOISY_SAMPLES = 500


def _workloads(data_set: str, width: int, *, is_regularized: bool) -> tuple[TrainingWorkload, ...]:
    return tuple(
        TrainingWorkload(data_set, _NUM_NOISY_SAMPLES, is_cp, width, is_regularized)
        for is_cp in (False, True)
    )


_PLAIN_DIGITS = _workloads("digits", 32, is_regularized=False)
_REGULARIZED_DIGITS = _workloads("digits", 32, is_regularized=True)
_FASHION = _workloads("fashion-mnist", 16, is_regularized=False)
_QUICK = replace(_RECIPE, epochs=60)

_FIGURE = LineFigure(
    "noise",
    "test accuracy",
    is_logarithmic=False,
    panels=tuple(
        Panel(
            worded(data_set),
            rf"{data_set}-(.+)-noise-[\d.]+",
            baselines=f"{data_set}-(majority|logistic-regression)",
        )
        for data_set in ("digits", "fashion-mnist", "cifar10")
    ),
    dashed="-regularized",
    labels={
        "plain": "plain layers",
        "cp": "CP layers",
        "plain-regularized": "plain layers, regularized",
        "cp-regularized": "CP layers, regularized",
        "resnet20-plain": "ResNet-20, plain layers",
        "resnet20-cp": "ResNet-20, CP layers",
        "logistic-regression": "logistic regression, true labels",
    },
    shares_axis=True,
)

_COLUMNS = (
    "test accuracy",
    "train accuracy",
    "noise",
    "epochs",
    "ended by",
    "parameters",
    "Rademacher bound",
    _COMPONENTS,
)
_HYPOTHESIS = (
    "Networks with CP layers keep more accuracy under random labels than plain ones of equal size "
    "(Li et al. 2020)."
)

LABEL_NOISE = Experiment(
    name="label-noise",
    title="Trained on partly random labels: accuracy on true ones, in percent",
    entries=(
        *class_baselines("digits", _NUM_NOISY_SAMPLES),
        *class_baselines("fashion-mnist", _NUM_NOISY_SAMPLES),
        *(
            NoisyBaseline(workload, noise)
            for workload in (_PLAIN_DIGITS[0], _FASHION[0])
            for noise in NOISES
        ),
        *(
            LabelNoiseEntry(workload, noise, _RECIPE)
            for workload in (*_PLAIN_DIGITS, *_REGULARIZED_DIGITS, *_FASHION)
            for noise in NOISES
        ),
        *(
            RademacherEntry(workload, _RECIPE)
            for workload in (*_PLAIN_DIGITS, *_REGULARIZED_DIGITS)
        ),
    ),
    quick=(
        *(
            LabelNoiseEntry(replace(workload, num_samples=100), 0.4, _QUICK)
            for workload in _PLAIN_DIGITS
        ),
        RademacherEntry(replace(_PLAIN_DIGITS[1], num_samples=100), _QUICK),
    ),
    seconds=600.0,
    seeds=3,
    columns=_COLUMNS,
    figure=_FIGURE,
    claims=Claims(
        "Do CP layers keep more accuracy than plain ones when labels are wrong?",
        tuple(
            Pair(
                f"{worded(data_set)}{suffix.replace('-', ', ')}, {noise:g} of the labels random: "
                f"CP layers against plain ones",
                f"{data_set}-cp{suffix}-noise-{noise:g}",
                f"{data_set}-plain{suffix}-noise-{noise:g}",
                _score(data_set, noise),
                is_claimed_better=True,
            )
            for data_set, suffix in (
                ("digits", ""),
                ("digits", "-regularized"),
                ("fashion-mnist", ""),
            )
            for noise in NOISES
        ),
        hypothesis=_HYPOTHESIS,
    ),
    needs="FashionMNIST/raw",
    protocol=(
        "A share of the first 500 training labels is replaced by draws from all ten classes "
        "alike, so that a tenth of the draws are right; at 1.0 all are random. Three convolutions "
        "(of 32, 64 and 64 channels for digits, of half as many for Fashion-MNIST) and a linear "
        "map; with CP layers the two in the middle are in CP form with as many parameters, and "
        "all start with the same variances. Adam from 2e-3 along a cosine that would end after 80 "
        "epochs, batches of 32; the run ends when 99.9 percent of the labels given are learned "
        "(looked at every second epoch), or after 80 epochs, and its last epoch is scored on the "
        "whole test set. Regularized: a weight decay of 0.1 and dropout of one half before the "
        "linear map. Rademacher complexity: for random signs, a network is trained on the true "
        "label where the sign is -1 and on another one where it is +1; the complexity is the mean "
        "of sign times error, at most the share of signs +1. Training finds it from below. "
        "Baselines: the most frequent class and logistic regression, on true labels and on the "
        "same random ones."
    ),
)


# The same on CIFAR-10, with residual networks of the source's kind: ResNet-20 for VGG-16.


CIFAR10_NOISES = (0.0, 0.2, 0.4, 0.6)
_CIFAR10 = tuple(
    ResNetWorkload("cifar10", 2_000, is_cp, is_regularized=False) for is_cp in (False, True)
)
_CIFAR10_RECIPE = replace(_RECIPE, epochs=60, batch_size=64, precision=MixedPrecision())

LABEL_NOISE_CIFAR10 = Experiment(
    name="label-noise-cifar10",
    title="ResNet-20 on partly random labels of CIFAR-10: accuracy on true ones, in percent",
    entries=(
        *class_baselines("cifar10", 2_000),
        *(NoisyBaseline(_CIFAR10[0], noise) for noise in CIFAR10_NOISES),
        *(
            LabelNoiseEntry(workload, noise, _CIFAR10_RECIPE)
            for noise in CIFAR10_NOISES
            for workload in _CIFAR10
        ),
    ),
    quick=LABEL_NOISE.quick[:2],
    seconds=1800.0,
    seeds=3,
    columns=_COLUMNS,
    figure=_FIGURE,
    claims=Claims(
        "Do CP layers keep more accuracy than plain ones when labels of CIFAR-10 are wrong?",
        tuple(
            Pair(
                f"{noise:g} of the labels random: CP layers against plain ones",
                f"cifar10-resnet20-cp-noise-{noise:g}",
                f"cifar10-resnet20-plain-noise-{noise:g}",
                _score("cifar10", noise),
                is_claimed_better=True,
            )
            for noise in CIFAR10_NOISES
        ),
        facts=spectrum_facts,
        hypothesis=_HYPOTHESIS,
    ),
    needs="cifar-10-batches-bin",
    protocol=(
        "ResNet-20 with batch normalization; with CP layers all convolutions but the first are "
        "drawn and trained in CP form at the rank with as many parameters. A share of the first "
        "2,000 training labels is replaced by draws from all ten classes alike. Adam from 2e-3 "
        "along a cosine that would end after 60 epochs, batches of 64, no augmentation; the run "
        "ends when 99.9 percent of the labels given are learned, or after 60 epochs, and its last "
        "epoch is scored on the whole test set. Components for 90 %: the share of the components "
        "of a CP layer, the largest first, that holds 90 % of the squares of their norms, averaged "
        "over the layers. Products in bfloat16 where the processor has units for it, weights and "
        "scores in float32. Baselines: the most frequent class and logistic regression, on true "
        "labels and on the same random ones."
    ),
)
