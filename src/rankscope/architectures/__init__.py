"""Networks whose separation rank can be measured exactly, and how to measure and certify it.

Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.architectures.attention.self_attention import SelfAttention as SelfAttention
    from rankscope.architectures.certification import certify_rank as certify_rank
    from rankscope.architectures.certification import verify as verify
    from rankscope.architectures.classifiers.features import PatchFeatures as PatchFeatures
    from rankscope.architectures.classifiers.hierarchical_classifier import (
        HierarchicalClassifier as HierarchicalClassifier,
    )
    from rankscope.architectures.classifiers.shallow_classifier import (
        ShallowClassifier as ShallowClassifier,
    )
    from rankscope.architectures.classifiers.train_classifier import (
        TrainClassifier as TrainClassifier,
    )
    from rankscope.architectures.convolutional import ConvolutionalCircuit as ConvolutionalCircuit
    from rankscope.architectures.degree.degree_attention import DegreeAttention as DegreeAttention
    from rankscope.architectures.degree.degree_network import DegreeNetwork as DegreeNetwork
    from rankscope.architectures.degree.degree_polynomial import (
        DegreePolynomial as DegreePolynomial,
    )
    from rankscope.architectures.degree.mixer_sizes import MixerSizes as MixerSizes
    from rankscope.architectures.degree.mlp_mixer import MlpMixer as MlpMixer
    from rankscope.architectures.degree.polynomial_mixer import PolynomialMixer as PolynomialMixer
    from rankscope.architectures.measuring import measure_rank as measure_rank
    from rankscope.architectures.measuring import measure_ranks as measure_ranks
    from rankscope.architectures.network import PolynomialNetwork as PolynomialNetwork
    from rankscope.architectures.products import ProductNetwork as ProductNetwork
    from rankscope.architectures.recurrent import RecurrentCircuit as RecurrentCircuit
    from rankscope.architectures.shallow import Shallow as Shallow
    from rankscope.architectures.sparse_polynomial import SparsePolynomial as SparsePolynomial
    from rankscope.architectures.tensor_train import TensorTrain as TensorTrain
    from rankscope.architectures.witness import witness_weights as witness_weights

_HOMES = {
    "ConvolutionalCircuit": "convolutional",
    "DegreeAttention": "degree.degree_attention",
    "DegreeNetwork": "degree.degree_network",
    "DegreePolynomial": "degree.degree_polynomial",
    "HierarchicalClassifier": "classifiers.hierarchical_classifier",
    "MixerSizes": "degree.mixer_sizes",
    "MlpMixer": "degree.mlp_mixer",
    "PatchFeatures": "classifiers.features",
    "PolynomialMixer": "degree.polynomial_mixer",
    "PolynomialNetwork": "network",
    "ProductNetwork": "products",
    "RecurrentCircuit": "recurrent",
    "SelfAttention": "attention.self_attention",
    "Shallow": "shallow",
    "ShallowClassifier": "classifiers.shallow_classifier",
    "SparsePolynomial": "sparse_polynomial",
    "TensorTrain": "tensor_train",
    "TrainClassifier": "classifiers.train_classifier",
    "certify_rank": "certification",
    "measure_rank": "measuring",
    "measure_ranks": "measuring",
    "verify": "certification",
    "witness_weights": "witness",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.architectures' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.architectures.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
