"""One training loop and its parts; data sets, texts, losses and scores are modules beside it."""

from rankscope.training.batches import Batch, TensorData
from rankscope.training.history import EarlyStop, History, StopAt
from rankscope.training.loop import cross_entropy, fit
from rankscope.training.processes import FabricProcesses, OneProcess
from rankscope.training.recipe import (
    SGD,
    Adam,
    Bfloat16,
    Constant,
    Cosine,
    PiecewiseLinear,
    Recipe,
    TimedCosine,
)

__all__ = [
    "SGD",
    "Adam",
    "Batch",
    "Bfloat16",
    "Constant",
    "Cosine",
    "EarlyStop",
    "FabricProcesses",
    "History",
    "OneProcess",
    "PiecewiseLinear",
    "Recipe",
    "StopAt",
    "TensorData",
    "TimedCosine",
    "cross_entropy",
    "fit",
]
