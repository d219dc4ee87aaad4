"""When to stop: because a score no longer improves, or because it is good enough."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.errors import TrainingError
from rankscope.training.history import Record


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
            found = ", ".join(record.metrics) or "nothing"
            raise TrainingError(
                f"EarlyStop: evaluate must give {self.metric!r} after every epoch, got {found}."
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
