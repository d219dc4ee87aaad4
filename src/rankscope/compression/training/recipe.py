"""Training recipes as plain data, checked when they are made."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import torch
from torch import nn

from rankscope.errors import TrainingError
from rankscope.files import write_atomically

# --- What a run of training did, how long it worked, and when it stops ----------------------------


# The time that work takes, whatever else the machine does.


def working_seconds() -> float:
    """Processor time of this process, over its number of threads.

    On a quiet machine that is the time on the wall; beside other work it is less, so that runs
    which are limited by it still compare.
    """
    return process_time() / torch.get_num_threads()


# What a run of training did.


@dataclass(frozen=True)
class Record:
    """One epoch, or the part of the last one that was run.

    Args:
        epoch: counted from 1.
        samples: processed since the beginning of the run.
        seconds: spent since the beginning of the run, interruptions left out.
        learning_rate: of the last step.
        loss: mean over the samples of the epoch.
        metrics: what `evaluate` gave.
    """

    epoch: int
    samples: int
    seconds: float
    learning_rate: float
    loss: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class History:
    """The epochs of a run, and whether it came to its end.

    Args:
        records: one for each epoch.
        samples: processed in all.
        seconds: spent in all.
        is_complete: all epochs (or samples) were run, or the score no longer improved; False if
            the seconds ended it.
        best_epoch: whose weights the model has now; None for the last step's.
    """

    records: tuple[Record, ...]
    samples: int
    seconds: float
    is_complete: bool
    best_epoch: int | None = None


def write_metrics(path: Path, records: Sequence[Record]) -> None:
    """Write one line of JSON for each record; what is not finite is written as null."""
    lines = []
    for record in records:
        fields = to_plain(record)
        lines.append(json.dumps({**fields, **fields.pop("metrics")}, allow_nan=False))
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def to_plain(record: Record) -> dict[str, Any]:
    """A record as JSON can hold it: metrics that are not finite become None."""
    metrics = {
        name: value if math.isfinite(value) else None for name, value in record.metrics.items()
    }
    return {**asdict(record), "metrics": metrics}


def from_plain(fields: Mapping[str, Any]) -> Record:
    """The record that `to_plain` made this of; None becomes NaN."""
    metrics = {
        name: math.nan if value is None else float(value)
        for name, value in fields["metrics"].items()
    }
    return Record(**{**fields, "metrics": metrics})


# When to stop: because a score no longer improves, or because it is good enough.


@dataclass(frozen=True)
class EarlyStop:
    """End a run after `patience` epochs without a better score; the best weights are kept.

    Args:
        metric: its name in what `evaluate` gives; score it on validation data, not on test data.
        patience: how many epochs in a row may be no better than the best.
        larger_is_better: False for losses.

    Raises:
        TrainingError: if the patience is less than one epoch.
    """

    metric: str
    patience: int = 5
    larger_is_better: bool = True

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise TrainingError(f"EarlyStop: patience must be at least 1, got {self.patience}.")

    def best_epoch(self, records: Sequence[Record]) -> int | None:
        """The first epoch with the best score; what is no number is never best.

        Example:
            >>> scores = [0.7, 0.9, 0.9, 0.8]
            >>> records = [Record(n, 0, 0.0, 0.0, 0.0, {"a": s}) for n, s in enumerate(scores, 1)]
            >>> EarlyStop("a").best_epoch(records), EarlyStop("a", 2).is_due(records)
            (2, True)

        Raises:
            TrainingError: if the metric is not among the scores.
        """
        best, epoch = -math.inf, None
        for record in records:
            score = self._score(record)
            if score > best:
                best, epoch = score, record.epoch
        return epoch

    def is_due(self, records: Sequence[Record]) -> bool:
        """Whether the run is to end after these epochs."""
        return (
            bool(records) and records[-1].epoch - (self.best_epoch(records) or 0) >= self.patience
        )

    def _score(self, record: Record) -> float:
        if self.metric not in record.metrics:
            result = ", ".join(record.metrics) or "nothing"
            raise TrainingError(
                f"EarlyStop: evaluate must give {self.metric!r} after every epoch, got {result}."
            )
        score = record.metrics[self.metric]
        return score if self.larger_is_better else -score


@dataclass(frozen=True)
class StopAt:
    """End a run as soon as a score reaches a value; the weights are those of the last epoch.

    Args:
        metric: its name in what `evaluate` gives; epochs without it are not looked at.
        value: what is enough.
    """

    metric: str
    value: float

    def best_epoch(self, records: Sequence[Record]) -> int | None:
        """The last one: nothing is taken back."""
        return records[-1].epoch if records else None

    def is_due(self, records: Sequence[Record]) -> bool:
        """Whether the last epoch reached the value.

        Example:
            >>> reached = Record(3, 0, 0.0, 0.0, 0.0, {"accuracy": 99.95})
            >>> StopAt("accuracy", 99.9).is_due([reached])
            True
        """
        return bool(records) and records[-1].metrics.get(self.metric, -math.inf) >= self.value


# Floating-point precision of the forward pass; weights and their updates stay as they are.


_UNITS = ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16")  # as processors call them


class Precision(ABC):
    """Floating-point precision of the forward pass. Subclasses are frozen."""

    @abstractmethod
    def context(self, device: torch.device) -> AbstractContextManager[object]:
        """The context in which the loss of a batch is computed."""


@dataclass(frozen=True)
class FullPrecision(Precision):
    """The precision of the weights."""

    def context(self, device: torch.device) -> AbstractContextManager[object]:
        """Nothing special."""
        return nullcontext()


@dataclass(frozen=True)
class Bfloat16(Precision):
    """Products in bfloat16, where `torch.autocast` thinks it safe.

    Its exponents are those of float32, so that gradients need no scaling.
    """

    def context(self, device: torch.device) -> AbstractContextManager[object]:
        """Autocast of the device.

        Raises:
            TrainingError: if the device has no units for it: it would be slower and less exact.
        """
        if not has_bfloat16_units(device):
            raise TrainingError(
                f"Bfloat16: the device {str(device)!r} has no bfloat16 units, so that mixed "
                f"precision would be slower and less exact than float32. Train with "
                f"FullPrecision()."
            )
        return torch.autocast(device.type, dtype=torch.bfloat16)


@dataclass(frozen=True)
class MixedPrecision(Precision):
    """`Bfloat16` where the device has units for it, `FullPrecision` elsewhere.

    Steps of a ResNet-32 take 0.6 of the time with such units, those of a narrow transformer up to
    twice as long: `python -m benchmarks training`.
    """

    def context(self, device: torch.device) -> AbstractContextManager[object]:
        """Autocast of the device, or nothing special."""
        precision = Bfloat16() if has_bfloat16_units(device) else FullPrecision()
        return precision.context(device)


def has_bfloat16_units(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 numbers by itself."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        # Older versions of PyTorch cannot tell.
        capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
        return any(capabilities.get(unit, False) for unit in _UNITS)
    return False


@dataclass(frozen=True)
class Adam:
    """Adam, with the weight decay of the recipe taken from the weights and not from the gradient.

    Reference:
        Kingma & Ba (2015), arXiv:1412.6980; Loshchilov & Hutter (2019), arXiv:1711.05101.
    """

    betas: tuple[float, float] = (0.9, 0.999)

    def build(
        self, parameters: Sequence[nn.Parameter], *, weight_decay: float
    ) -> torch.optim.Optimizer:
        """A fresh optimizer; the loop sets its learning rate before every step."""
        return torch.optim.AdamW(
            parameters, betas=self.betas, weight_decay=weight_decay, fused=True
        )


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent; the weight decay of the recipe is added to the gradient."""

    momentum: float = 0.9
    nesterov: bool = False

    def build(
        self, parameters: Sequence[nn.Parameter], *, weight_decay: float
    ) -> torch.optim.Optimizer:
        """A fresh optimizer; the loop sets its learning rate before every step."""
        return torch.optim.SGD(
            parameters,
            lr=1.0,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=weight_decay,
        )


@dataclass(frozen=True)
class Spent:
    """How much of a run is over, before a step.

    Args:
        epoch: counted from 0.
        steps: share of all steps, in 0..1.
        seconds: share of the seconds allowed, in 0..1; 0 if there is no limit.
    """

    epoch: int
    steps: float
    seconds: float


class Schedule(ABC):
    """What the learning rate is multiplied by as a run goes on. Subclasses are frozen."""

    @abstractmethod
    def factor(self, spent: Spent) -> float:
        """The factor of the step that comes next."""


@dataclass(frozen=True)
class Constant(Schedule):
    """The same learning rate throughout."""

    def factor(self, spent: Spent) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from 1 down to 0 over all steps.

    Example:
        >>> Cosine().factor(Spent(epoch=0, steps=0.5, seconds=0.0))
        0.5
    """

    def factor(self, spent: Spent) -> float:
        return (1 + _cosine(spent.steps)) / 2


@dataclass(frozen=True)
class TimedCosine(Schedule):
    """Half a cosine over the steps or the seconds allowed, whichever are spent sooner.

    For runs that end by the clock. Such a run depends on the machine, so that it is not repeated
    to the bit.
    """

    def factor(self, spent: Spent) -> float:
        return (1 + _cosine(max(spent.steps, spent.seconds))) / 2


@dataclass(frozen=True)
class Recipe:
    """Everything that decides how a run goes, besides the model, the loss and the data.

    Args:
        epochs: passes over the data, unless one of the limits ends the run earlier.
        batch_size: the last batch of an epoch may be smaller.
        learning_rate: at the start; the schedule multiplies it.
        optimizer: Adam or SGD, with their own settings.
        weight_decay: of all parameters alike.
        schedule: of the learning rate.
        clip_norm: largest 2-norm of all gradients together; None for no limit.
        seed: of the order of the samples, of their augmentation, and of dropout.
        max_seconds: the run ends with the step during which they are over; it can be resumed. They
            are those of `working_seconds`, which other work on the machine does not use up.
        max_samples: the run ends with the step that reaches this many samples.
        early_stop: the run ends when a score no longer improves, or reaches a value; None for
            never.
        precision: of the forward pass.

    Raises:
        TrainingError: if a number is not of its kind.
    """

    epochs: int = 1
    batch_size: int = 128
    learning_rate: float = 1e-3
    optimizer: Adam | SGD = Adam()
    weight_decay: float = 0.0
    schedule: Schedule = Constant()
    clip_norm: float | None = None
    seed: int = 0
    max_seconds: float | None = None
    max_samples: int | None = None
    # Not in the representation, by which checkpoints of version 0.1.0 know their run.
    early_stop: EarlyStop | StopAt | None = field(default=None, repr=False)
    precision: Precision = field(default=FullPrecision(), repr=False)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate", *_LIMITS):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise TrainingError(f"Recipe: {name} must be finite and above 0, got {value}.")
        if not 0 <= self.weight_decay < math.inf:
            raise TrainingError(
                f"Recipe: weight_decay must be finite and not negative, got {self.weight_decay}."
            )
        if not 0 <= self.seed < 2**63:
            raise TrainingError(f"Recipe: seed must lie in 0..2^63 - 1, got {self.seed}.")


_LIMITS = ("clip_norm", "max_seconds", "max_samples")


def _cosine(share: float) -> float:
    # Exact at the middle, where floating point would give 6e-17.
    return math.sin(math.pi * (0.5 - share))


# A learning rate that goes up and down in straight lines.


# Of the published Lipschitz networks: up over two fifths, down to a twentieth, then to nothing.
RISE_AND_FALL = ((0.0, 0.0), (0.4, 1.0), (0.8, 0.05), (1.0, 0.0))


@dataclass(frozen=True)
class PiecewiseLinear(Schedule):
    """Straight lines between given points.

    Args:
        points: (share of the run, factor), with shares that rise from 0 to 1.

    Example:
        >>> PiecewiseLinear().factor(Spent(epoch=0, steps=0.2, seconds=0.0))
        0.5

    Raises:
        TrainingError: if the shares do not rise from 0 to 1.
    """

    points: tuple[tuple[float, float], ...] = RISE_AND_FALL

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        rises = all(before < after for before, after in pairwise(shares))
        if not shares or shares[0] != 0 or shares[-1] != 1 or not rises:
            raise TrainingError(
                f"PiecewiseLinear: the shares of a run must rise from 0 to 1, got {shares}."
            )

    def factor(self, spent: Spent) -> float:
        """The factor of the step that comes next."""
        for (before, low), (after, high) in pairwise(self.points):
            if spent.steps <= after:
                return low + (high - low) * (spent.steps - before) / (after - before)
        return self.points[-1][1]
