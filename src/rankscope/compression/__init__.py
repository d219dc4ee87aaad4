"""From a model to a plan (plain data) to a smaller model, under one budget.

Names are imported when they are first used: torch takes its time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.compression.activations import Activations as Activations
    from rankscope.compression.applying import Compressed as Compressed
    from rankscope.compression.applying import apply_plan as apply_plan
    from rankscope.compression.compressing import compress as compress
    from rankscope.compression.exporters import OnnxExporter as OnnxExporter
    from rankscope.compression.exporters import TorchExporter as TorchExporter
    from rankscope.compression.exporting import export as export
    from rankscope.compression.fine_tuning import Distillation as Distillation
    from rankscope.compression.fine_tuning import Imitation as Imitation
    from rankscope.compression.fine_tuning import Labels as Labels
    from rankscope.compression.fine_tuning import fine_tune as fine_tune
    from rankscope.compression.fisher import Fisher as Fisher
    from rankscope.compression.folding import Folded as Folded
    from rankscope.compression.folding import fold_normalizations as fold_normalizations
    from rankscope.compression.loading import load as load
    from rankscope.compression.plan import Budget as Budget
    from rankscope.compression.plan import Plan as Plan
    from rankscope.compression.plan import Unit as Unit
    from rankscope.compression.planning import Tolerance as Tolerance
    from rankscope.compression.planning import plan_compression as plan_compression
    from rankscope.compression.report import CompressionReport as CompressionReport
    from rankscope.compression.report import report_on as report_on
    from rankscope.compression.saving import save as save
    from rankscope.compression.scores import Weights as Weights
    from rankscope.compression.sequential import fit_stages as fit_stages
    from rankscope.compression.stages import stages_of as stages_of

_HOMES = {
    "Activations": "activations",
    "Budget": "plan",
    "Compressed": "applying",
    "CompressionReport": "report",
    "Distillation": "fine_tuning",
    "Fisher": "fisher",
    "Folded": "folding",
    "Imitation": "fine_tuning",
    "Labels": "fine_tuning",
    "OnnxExporter": "exporters",
    "Plan": "plan",
    "Tolerance": "planning",
    "TorchExporter": "exporters",
    "Unit": "plan",
    "Weights": "scores",
    "apply_plan": "applying",
    "compress": "compressing",
    "export": "exporting",
    "fine_tune": "fine_tuning",
    "fit_stages": "sequential",
    "fold_normalizations": "folding",
    "load": "loading",
    "plan_compression": "planning",
    "report_on": "report",
    "save": "saving",
    "stages_of": "stages",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.compression' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.compression.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
