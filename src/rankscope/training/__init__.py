"""One training loop, its data sets and its scores.

Names are imported when they are first used: torch takes its time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.training.adversarial import AdversarialLoss as AdversarialLoss
    from rankscope.training.batches import Batch as Batch
    from rankscope.training.batches import TensorData as TensorData
    from rankscope.training.datasets import load_data_set as load_data_set
    from rankscope.training.early_stop import EarlyStop as EarlyStop
    from rankscope.training.early_stop import StopAt as StopAt
    from rankscope.training.history import History as History
    from rankscope.training.label_noise import with_random_labels as with_random_labels
    from rankscope.training.loop import cross_entropy as cross_entropy
    from rankscope.training.loop import fit as fit
    from rankscope.training.margin_loss import MarginLoss as MarginLoss
    from rankscope.training.piecewise_schedule import PiecewiseLinear as PiecewiseLinear
    from rankscope.training.precision import Bfloat16 as Bfloat16
    from rankscope.training.precision import FullPrecision as FullPrecision
    from rankscope.training.preparation import EveryFewEpochs as EveryFewEpochs
    from rankscope.training.processes import FabricProcesses as FabricProcesses
    from rankscope.training.processes import OneProcess as OneProcess
    from rankscope.training.recipe import SGD as SGD
    from rankscope.training.recipe import Adam as Adam
    from rankscope.training.recipe import Constant as Constant
    from rankscope.training.recipe import Cosine as Cosine
    from rankscope.training.recipe import Recipe as Recipe
    from rankscope.training.recipe import Steps as Steps
    from rankscope.training.recipe import TimedCosine as TimedCosine
    from rankscope.training.text_data import TextData as TextData
    from rankscope.training.text_data import load_text as load_text
    from rankscope.training.translation_data import TranslationData as TranslationData
    from rankscope.training.translation_data import load_translation as load_translation

_HOMES = {
    "Adam": "recipe",
    "AdversarialLoss": "adversarial",
    "Batch": "batches",
    "Bfloat16": "precision",
    "Constant": "recipe",
    "Cosine": "recipe",
    "EarlyStop": "early_stop",
    "EveryFewEpochs": "preparation",
    "FabricProcesses": "processes",
    "FullPrecision": "precision",
    "History": "history",
    "MarginLoss": "margin_loss",
    "OneProcess": "processes",
    "PiecewiseLinear": "piecewise_schedule",
    "Recipe": "recipe",
    "SGD": "recipe",
    "Steps": "recipe",
    "StopAt": "early_stop",
    "TensorData": "batches",
    "TextData": "text_data",
    "TimedCosine": "recipe",
    "TranslationData": "translation_data",
    "cross_entropy": "loop",
    "fit": "loop",
    "load_data_set": "datasets",
    "load_text": "text_data",
    "load_translation": "translation_data",
    "with_random_labels": "label_noise",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.training' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.training.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
