"""Generalization bounds from compression, each with its theorem, its constants and its verdict.

Names are imported when they are first used: torch takes its time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.generalization.activations import measure_activations as measure_activations
    from rankscope.generalization.analysis import Generalization as Generalization
    from rankscope.generalization.analysis import Options as Options
    from rankscope.generalization.analysis import analyse as analyse
    from rankscope.generalization.bounds import GeneralizationBound as GeneralizationBound
    from rankscope.generalization.figures import draw_properties as draw_properties
    from rankscope.generalization.finite_class import Quantization as Quantization
    from rankscope.generalization.finite_class import quantize_network as quantize_network
    from rankscope.generalization.measured_search import find_measured_ranks as find_measured_ranks
    from rankscope.generalization.properties import Exact as Exact
    from rankscope.generalization.properties import Triangle as Triangle
    from rankscope.generalization.quantized_training import (
        QuantizedCrossEntropy as QuantizedCrossEntropy,
    )
    from rankscope.generalization.quantized_training import fixed_scales as fixed_scales
    from rankscope.generalization.rademacher import measure_rademacher as measure_rademacher
    from rankscope.generalization.rademacher import rademacher_bound as rademacher_bound
    from rankscope.generalization.rank_search import Direct as Direct
    from rankscope.generalization.rank_search import Paper as Paper
    from rankscope.generalization.rank_search import Search as Search
    from rankscope.generalization.rank_search import find_ranks as find_ranks
    from rankscope.generalization.rigorous import Chernoff as Chernoff
    from rankscope.generalization.rigorous import Hoeffding as Hoeffding
    from rankscope.generalization.rigorous import rigorous_bound as rigorous_bound
    from rankscope.generalization.sample import AsPublished as AsPublished
    from rankscope.generalization.sample import Euclidean as Euclidean
    from rankscope.generalization.sample import LargestEntry as LargestEntry
    from rankscope.generalization.sample import Sample as Sample
    from rankscope.generalization.tracking import TrackBounds as TrackBounds
    from rankscope.generalization.walk import read_walk as read_walk

_HOMES = {
    "AsPublished": "sample",
    "Chernoff": "rigorous",
    "Direct": "rank_search",
    "Euclidean": "sample",
    "Exact": "properties",
    "Generalization": "analysis",
    "GeneralizationBound": "bounds",
    "Hoeffding": "rigorous",
    "LargestEntry": "sample",
    "Options": "analysis",
    "Paper": "rank_search",
    "Quantization": "finite_class",
    "QuantizedCrossEntropy": "quantized_training",
    "Sample": "sample",
    "Search": "rank_search",
    "TrackBounds": "tracking",
    "Triangle": "properties",
    "analyse": "analysis",
    "draw_properties": "figures",
    "find_measured_ranks": "measured_search",
    "find_ranks": "rank_search",
    "fixed_scales": "quantized_training",
    "measure_activations": "activations",
    "measure_rademacher": "rademacher",
    "quantize_network": "finite_class",
    "rademacher_bound": "rademacher",
    "read_walk": "walk",
    "rigorous_bound": "rigorous",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.generalization' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.generalization.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
