"""What a run of training did."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankscope.files import write_atomically


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
