"""Tensors as sums, trains and rings of small ones, with the error made; bounds of the CP rank.

Names are imported when they are first used: torch takes its time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.decompositions.cp_form import CP as CP
    from rankscope.decompositions.cp_form import decompose_cp as decompose_cp
    from rankscope.decompositions.cp_search import CPOptions as CPOptions
    from rankscope.decompositions.fit import CPFit as CPFit
    from rankscope.decompositions.fit import FitOptions as FitOptions
    from rankscope.decompositions.fit import fit_cp as fit_cp
    from rankscope.decompositions.interval import CPRank as CPRank
    from rankscope.decompositions.interval import CPRankOptions as CPRankOptions
    from rankscope.decompositions.interval import cp_rank as cp_rank
    from rankscope.decompositions.svd import SVD as SVD
    from rankscope.decompositions.svd import Economy as Economy
    from rankscope.decompositions.svd import Randomized as Randomized
    from rankscope.decompositions.svd import decompose_svd as decompose_svd
    from rankscope.decompositions.tensor_ring import TensorRing as TensorRing
    from rankscope.decompositions.tensor_ring import decompose_tensor_ring as decompose_tensor_ring
    from rankscope.decompositions.tensor_train import TensorTrain as TensorTrain
    from rankscope.decompositions.tensor_train import (
        decompose_tensor_train as decompose_tensor_train,
    )
    from rankscope.decompositions.tensorly_tensors import from_tensorly as from_tensorly
    from rankscope.decompositions.tensorly_tensors import to_tensorly as to_tensorly
    from rankscope.decompositions.train_rounding import round_tensor_train as round_tensor_train
    from rankscope.decompositions.truncation import Bonds as Bonds
    from rankscope.decompositions.truncation import KeepParameters as KeepParameters
    from rankscope.decompositions.truncation import MaxBond as MaxBond
    from rankscope.decompositions.truncation import RelativeError as RelativeError
    from rankscope.decompositions.tucker_form import Tucker as Tucker
    from rankscope.decompositions.tucker_form import decompose_tucker as decompose_tucker

_HOMES = {
    "Bonds": "truncation",
    "CP": "cp_form",
    "CPFit": "fit",
    "CPOptions": "cp_search",
    "CPRank": "interval",
    "CPRankOptions": "interval",
    "Economy": "svd",
    "FitOptions": "fit",
    "KeepParameters": "truncation",
    "MaxBond": "truncation",
    "Randomized": "svd",
    "RelativeError": "truncation",
    "SVD": "svd",
    "TensorRing": "tensor_ring",
    "TensorTrain": "tensor_train",
    "Tucker": "tucker_form",
    "cp_rank": "interval",
    "decompose_cp": "cp_form",
    "decompose_svd": "svd",
    "decompose_tensor_ring": "tensor_ring",
    "decompose_tensor_train": "tensor_train",
    "decompose_tucker": "tucker_form",
    "fit_cp": "fit",
    "from_tensorly": "tensorly_tensors",
    "round_tensor_train": "train_rounding",
    "to_tensorly": "tensorly_tensors",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.decompositions' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.decompositions.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
