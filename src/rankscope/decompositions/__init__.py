"""Tensors as sums of outer products: fits, and intervals that hold the CP rank.

Names are imported when they are first used: torch and scipy take their time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.decompositions.fit import CPFit as CPFit
    from rankscope.decompositions.fit import FitOptions as FitOptions
    from rankscope.decompositions.fit import fit_cp as fit_cp
    from rankscope.decompositions.interval import CPRank as CPRank
    from rankscope.decompositions.interval import CPRankOptions as CPRankOptions
    from rankscope.decompositions.interval import cp_rank as cp_rank

_HOMES = {
    "CPFit": "fit",
    "CPRank": "interval",
    "CPRankOptions": "interval",
    "FitOptions": "fit",
    "cp_rank": "interval",
    "fit_cp": "fit",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.decompositions' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.decompositions.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
