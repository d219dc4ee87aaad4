"""The sources' experiments, each a table that anyone can compute again.

Names are imported when they are first used: torch takes its time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.experiments.catalogue import EXPERIMENTS as EXPERIMENTS
    from rankscope.experiments.experiment import Entry as Entry
    from rankscope.experiments.experiment import Experiment as Experiment
    from rankscope.experiments.experiment import Workplace as Workplace
    from rankscope.experiments.outcome import Outcome as Outcome
    from rankscope.experiments.outcome import read_outcome as read_outcome
    from rankscope.experiments.running import RunOptions as RunOptions
    from rankscope.experiments.running import run_experiment as run_experiment

_HOMES = {
    "EXPERIMENTS": "catalogue",
    "Entry": "experiment",
    "Experiment": "experiment",
    "Outcome": "outcome",
    "RunOptions": "running",
    "Workplace": "experiment",
    "read_outcome": "outcome",
    "run_experiment": "running",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.experiments' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.experiments.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
