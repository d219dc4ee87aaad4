"""What a run of training did, how long it worked, and when it stops."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import torch

from rankscope.errors import TrainingError
from rankscope.files import write_atomically

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
