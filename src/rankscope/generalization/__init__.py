"""Generalization bounds from compression, each with its theorem, its constants and its verdict.

Names are imported when they are first used: torch takes its time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.generalization.analysis import Generalization as Generalization
    from rankscope.generalization.analysis import Options as Options
    from rankscope.generalization.analysis import TrackBounds as TrackBounds
    from rankscope.generalization.analysis import analyse as analyse
    from rankscope.generalization.analysis import draw_properties as draw_properties
    from rankscope.generalization.bounds import GeneralizationBound as GeneralizationBound
    from rankscope.generalization.bounds import measure_rademacher as measure_rademacher
    from rankscope.generalization.bounds import rademacher_bound as rademacher_bound
    from rankscope.generalization.compressed_network import (
        find_measured_ranks as find_measured_ranks,
    )
    from rankscope.generalization.finite_class import Chernoff as Chernoff
    from rankscope.generalization.finite_class import Hoeffding as Hoeffding
    from rankscope.generalization.finite_class import Quantization as Quantization
    from rankscope.generalization.finite_class import (
        QuantizedCrossEntropy as QuantizedCrossEntropy,
    )
    from rankscope.generalization.finite_class import fixed_scales as fixed_scales
    from rankscope.generalization.finite_class import quantize_network as quantize_network
    from rankscope.generalization.finite_class import rigorous_bound as rigorous_bound
    from rankscope.generalization.properties import Exact as Exact
    from rankscope.generalization.properties import Triangle as Triangle
    from rankscope.generalization.rank_search import Direct as Direct
    from rankscope.generalization.rank_search import Paper as Paper
    from rankscope.generalization.rank_search import Search as Search
    from rankscope.generalization.rank_search import find_ranks as find_ranks
    from rankscope.generalization.sample import AsPublished as AsPublished
    from rankscope.generalization.sample import Euclidean as Euclidean
    from rankscope.generalization.sample import LargestEntry as LargestEntry
    from rankscope.generalization.sample import Sample as Sample
    from rankscope.generalization.walk import measure_activations as measure_activations
    from rankscope.generalization.walk import read_walk as read_walk

_HOMES = {
    "AsPublished": "sample",
    "Chernoff": "finite_class",
    "Direct": "rank_search",
    "Euclidean": "sample",
    "Exact": "properties",
    "Generalization": "analysis",
    "GeneralizationBound": "bounds",
    "Hoeffding": "finite_class",
    "LargestEntry": "sample",
    "Options": "analysis",
    "Paper": "rank_search",
    "Quantization": "finite_class",
    "QuantizedCrossEntropy": "finite_class",
    "Sample": "sample",
    "Search": "rank_search",
    "TrackBounds": "analysis",
    "Triangle": "properties",
    "analyse": "analysis",
    "draw_properties": "analysis",
    "find_measured_ranks": "compressed_network",
    "find_ranks": "rank_search",
    "fixed_scales": "finite_class",
    "measure_activations": "walk",
    "measure_rademacher": "bounds",
    "quantize_network": "finite_class",
    "rademacher_bound": "bounds",
    "read_walk": "walk",
    "rigorous_bound": "finite_class",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.generalization' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.generalization.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
