"""Layers that hold small tensors instead of large weights, and layers that preserve norms.

Names are imported when they are first used: torch takes its time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.layers.attention import (
        FactorizedMultiheadAttention as FactorizedMultiheadAttention,
    )
    from rankscope.layers.convolution import FactorizedConv1d as FactorizedConv1d
    from rankscope.layers.convolution import FactorizedConv2d as FactorizedConv2d
    from rankscope.layers.cp_attention import CPAttention as CPAttention
    from rankscope.layers.cp_layers import CPConv2d as CPConv2d
    from rankscope.layers.cp_layers import CPLinear as CPLinear
    from rankscope.layers.cp_layers import matched_rank as matched_rank
    from rankscope.layers.embedding import FactorizedEmbedding as FactorizedEmbedding
    from rankscope.layers.formats.catalogue import FORMATS as FORMATS
    from rankscope.layers.formats.format import Format as Format
    from rankscope.layers.formats.format import WeightShape as WeightShape
    from rankscope.layers.formats.format import Window as Window
    from rankscope.layers.linear import FactorizedLinear as FactorizedLinear
    from rankscope.layers.norm_preserving.householder import (
        HouseholderActivation as HouseholderActivation,
    )
    from rankscope.layers.norm_preserving.last_layer import NormalizedLinear as NormalizedLinear
    from rankscope.layers.norm_preserving.linear import OrthogonalLinear as OrthogonalLinear
    from rankscope.layers.norm_preserving.pooling import NormPreservingPool as NormPreservingPool
    from rankscope.layers.norm_preserving.scaling import InputScaling as InputScaling
    from rankscope.layers.norm_preserving.skips import ConcatenativeSkip as ConcatenativeSkip
    from rankscope.layers.norm_preserving.skips import ConvexSkip as ConvexSkip
    from rankscope.layers.norm_preserving.sorting import GroupSort as GroupSort
    from rankscope.layers.norm_preserving.sorting import MaxMin as MaxMin
    from rankscope.layers.orthogonal.convolution import OrthogonalConv1d as OrthogonalConv1d
    from rankscope.layers.orthogonal.convolution import OrthogonalConv2d as OrthogonalConv2d
    from rankscope.layers.orthogonal.convolution import (
        OrthogonalConvTranspose1d as OrthogonalConvTranspose1d,
    )
    from rankscope.layers.orthogonal.convolution import (
        OrthogonalConvTranspose2d as OrthogonalConvTranspose2d,
    )
    from rankscope.layers.orthogonal.factoring import ParaunitaryFactors as ParaunitaryFactors
    from rankscope.layers.orthogonal.factoring import factor_paraunitary as factor_paraunitary
    from rankscope.layers.orthogonal.initialization import Identity as Identity
    from rankscope.layers.orthogonal.initialization import Permutation as Permutation
    from rankscope.layers.orthogonal.initialization import Uniform as Uniform
    from rankscope.layers.orthogonal.parametrizations import Cayley as Cayley
    from rankscope.layers.orthogonal.parametrizations import Householder as Householder
    from rankscope.layers.orthogonal.parametrizations import MatrixExponential as MatrixExponential
    from rankscope.layers.paths import Path as Path
    from rankscope.layers.recurrent import FactorizedGRU as FactorizedGRU
    from rankscope.layers.recurrent import FactorizedLSTM as FactorizedLSTM
    from rankscope.layers.softmax_free_attention import SoftmaxFreeAttention as SoftmaxFreeAttention
    from rankscope.layers.tunable_attention import TunableAttention as TunableAttention

_HOMES = {
    "CPAttention": "cp_attention",
    "CPConv2d": "cp_layers",
    "CPLinear": "cp_layers",
    "Cayley": "orthogonal.parametrizations",
    "ConcatenativeSkip": "norm_preserving.skips",
    "ConvexSkip": "norm_preserving.skips",
    "FORMATS": "formats.catalogue",
    "FactorizedConv1d": "convolution",
    "FactorizedConv2d": "convolution",
    "FactorizedEmbedding": "embedding",
    "FactorizedGRU": "recurrent",
    "FactorizedLSTM": "recurrent",
    "FactorizedLinear": "linear",
    "FactorizedMultiheadAttention": "attention",
    "Format": "formats.format",
    "GroupSort": "norm_preserving.sorting",
    "Householder": "orthogonal.parametrizations",
    "HouseholderActivation": "norm_preserving.householder",
    "Identity": "orthogonal.initialization",
    "InputScaling": "norm_preserving.scaling",
    "MatrixExponential": "orthogonal.parametrizations",
    "MaxMin": "norm_preserving.sorting",
    "NormPreservingPool": "norm_preserving.pooling",
    "NormalizedLinear": "norm_preserving.last_layer",
    "OrthogonalConv1d": "orthogonal.convolution",
    "OrthogonalConv2d": "orthogonal.convolution",
    "OrthogonalConvTranspose1d": "orthogonal.convolution",
    "OrthogonalConvTranspose2d": "orthogonal.convolution",
    "OrthogonalLinear": "norm_preserving.linear",
    "ParaunitaryFactors": "orthogonal.factoring",
    "Path": "paths",
    "Permutation": "orthogonal.initialization",
    "SoftmaxFreeAttention": "softmax_free_attention",
    "TunableAttention": "tunable_attention",
    "Uniform": "orthogonal.initialization",
    "WeightShape": "formats.format",
    "Window": "formats.format",
    "factor_paraunitary": "orthogonal.factoring",
    "matched_rank": "cp_layers",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.layers' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.layers.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
