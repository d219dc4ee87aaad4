"""Experiments: tables that anyone can compute again, each loaded by its name.

Importing this package does not load torch; `find_experiment` does.
"""

from rankscope.experiments.catalogue import EXPERIMENTS, TOPICS, find_experiment, find_topic
from rankscope.experiments.experiment import Entry, Experiment

__all__ = ["EXPERIMENTS", "TOPICS", "Entry", "Experiment", "find_experiment", "find_topic"]
