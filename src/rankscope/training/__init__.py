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
    from rankscope.training.history import History as History
    from rankscope.training.loop import cross_entropy as cross_entropy
    from rankscope.training.loop import fit as fit
    from rankscope.training.margin_loss import MarginLoss as MarginLoss
    from rankscope.training.piecewise_schedule import PiecewiseLinear as PiecewiseLinear
    from rankscope.training.recipe import SGD as SGD
    from rankscope.training.recipe import Adam as Adam
    from rankscope.training.recipe import Constant as Constant
    from rankscope.training.recipe import Cosine as Cosine
    from rankscope.training.recipe import Recipe as Recipe
    from rankscope.training.recipe import Steps as Steps
    from rankscope.training.recipe import TimedCosine as TimedCosine

_HOMES = {
    "Adam": "recipe",
    "AdversarialLoss": "adversarial",
    "Batch": "batches",
    "Constant": "recipe",
    "Cosine": "recipe",
    "History": "history",
    "MarginLoss": "margin_loss",
    "PiecewiseLinear": "piecewise_schedule",
    "Recipe": "recipe",
    "SGD": "recipe",
    "Steps": "recipe",
    "TensorData": "batches",
    "TimedCosine": "recipe",
    "cross_entropy": "loop",
    "fit": "loop",
    "load_data_set": "datasets",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.training' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.training.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
