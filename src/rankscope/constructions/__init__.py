"""Networks built by hand, and the theorems that they are.

Names are imported when they are first used: torch takes its time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.constructions.activations import ACTIVATIONS as ACTIVATIONS
    from rankscope.constructions.activations import gelu_minimum as gelu_minimum
    from rankscope.constructions.activations import measure_activation as measure_activation
    from rankscope.constructions.approximation import (
        approximate_on_interval as approximate_on_interval,
    )
    from rankscope.constructions.box import Box as Box
    from rankscope.constructions.convex_problems import least_squares as least_squares
    from rankscope.constructions.convex_problems import logistic_regression as logistic_regression
    from rankscope.constructions.dead_units import DeadUnits as DeadUnits
    from rankscope.constructions.deep_narrow import MaxMinString as MaxMinString
    from rankscope.constructions.deep_narrow import Step as Step
    from rankscope.constructions.deep_narrow import narrow_form as narrow_form
    from rankscope.constructions.deep_narrow import narrow_network as narrow_network
    from rankscope.constructions.descent import gradient_descent as gradient_descent
    from rankscope.constructions.distances import compare_distributions as compare_distributions
    from rankscope.constructions.distances import cross_entropy as cross_entropy
    from rankscope.constructions.distances import entropy as entropy
    from rankscope.constructions.distances import kullback_leibler as kullback_leibler
    from rankscope.constructions.distances import lp_distance as lp_distance
    from rankscope.constructions.distances import total_variation as total_variation
    from rankscope.constructions.hidden_layer import one_hidden_layer as one_hidden_layer
    from rankscope.constructions.hidden_layer import read_piecewise_linear as read_piecewise_linear
    from rankscope.constructions.hidden_layer import with_fewest_units as with_fewest_units
    from rankscope.constructions.lookup_attention import attend as attend
    from rankscope.constructions.lookup_attention import lookup as lookup
    from rankscope.constructions.montufar import montufar_network as montufar_network
    from rankscope.constructions.multi_head import MultiHeadAttention as MultiHeadAttention
    from rankscope.constructions.normalization import BatchNormalization as BatchNormalization
    from rankscope.constructions.normalization import layer_normalize as layer_normalize
    from rankscope.constructions.one_layer_obstruction import find_obstruction as find_obstruction
    from rankscope.constructions.one_layer_obstruction import maximum_of_three as maximum_of_three
    from rankscope.constructions.one_layer_obstruction import (
        verify_obstruction as verify_obstruction,
    )
    from rankscope.constructions.optimizers import Adam as Adam
    from rankscope.constructions.optimizers import AveragedMomentum as AveragedMomentum
    from rankscope.constructions.optimizers import GradientDescent as GradientDescent
    from rankscope.constructions.optimizers import HeavyBall as HeavyBall
    from rankscope.constructions.optimizers import follow as follow
    from rankscope.constructions.pictures_line import draw_approximation as draw_approximation
    from rankscope.constructions.pictures_line import draw_barrier as draw_barrier
    from rankscope.constructions.pictures_line import draw_hidden_units as draw_hidden_units
    from rankscope.constructions.pictures_line import draw_sawtooth as draw_sawtooth
    from rankscope.constructions.pictures_regions import draw_regions as draw_regions
    from rankscope.constructions.piecewise_linear import PiecewiseLinear as PiecewiseLinear
    from rankscope.constructions.polynomial_activation import (
        polynomial_barrier as polynomial_barrier,
    )
    from rankscope.constructions.polynomial_activation import (
        polynomial_network as polynomial_network,
    )
    from rankscope.constructions.recurrent_attention import RecurrentAttention as RecurrentAttention
    from rankscope.constructions.recurrent_attention import reversing_network as reversing_network
    from rankscope.constructions.region_bounds import montufar_lower_bound as montufar_lower_bound
    from rankscope.constructions.region_bounds import product_upper_bound as product_upper_bound
    from rankscope.constructions.region_bounds import zaslavsky_upper_bound as zaslavsky_upper_bound
    from rankscope.constructions.regions_line import regions_on_line as regions_on_line
    from rankscope.constructions.regions_plane import on_plane as on_plane
    from rankscope.constructions.regions_plane import regions_in_plane as regions_in_plane
    from rankscope.constructions.regions_space import regions_in_space as regions_in_space
    from rankscope.constructions.regularizers import EarlyStopping as EarlyStopping
    from rankscope.constructions.ridge_approximation import approximate_on_box as approximate_on_box
    from rankscope.constructions.sawtooth import depth_separation as depth_separation
    from rankscope.constructions.sawtooth import distance_to_sawtooth as distance_to_sawtooth
    from rankscope.constructions.sawtooth import most_pieces as most_pieces
    from rankscope.constructions.sawtooth import sawtooth_distance_bound as sawtooth_distance_bound
    from rankscope.constructions.sawtooth import sawtooth_network as sawtooth_network
    from rankscope.constructions.shared_matrix import SharedMatrix as SharedMatrix
    from rankscope.constructions.structured_matrix import as_matrix as as_matrix
    from rankscope.constructions.structured_matrix import shared_convolution as shared_convolution
    from rankscope.constructions.targets import IntervalFunction as IntervalFunction
    from rankscope.constructions.targets import LipschitzFunction as LipschitzFunction
    from rankscope.constructions.tensor_product import pure_factors as pure_factors
    from rankscope.constructions.tensor_product import pure_tensor as pure_tensor
    from rankscope.constructions.topic import Topic as Topic
    from rankscope.constructions.two_five_one import TwoFiveOne as TwoFiveOne
    from rankscope.constructions.unit_counts import FewestUnits as FewestUnits
    from rankscope.constructions.unit_counts import fewest_units as fewest_units
    from rankscope.constructions.weight_sharing import shared_graph_layer as shared_graph_layer
    from rankscope.constructions.weight_sharing import shared_recurrence as shared_recurrence

_HOMES = {
    "ACTIVATIONS": "activations",
    "Adam": "optimizers",
    "AveragedMomentum": "optimizers",
    "BatchNormalization": "normalization",
    "Box": "box",
    "DeadUnits": "dead_units",
    "EarlyStopping": "regularizers",
    "FewestUnits": "unit_counts",
    "GradientDescent": "optimizers",
    "HeavyBall": "optimizers",
    "IntervalFunction": "targets",
    "LipschitzFunction": "targets",
    "MaxMinString": "deep_narrow",
    "MultiHeadAttention": "multi_head",
    "PiecewiseLinear": "piecewise_linear",
    "RecurrentAttention": "recurrent_attention",
    "SharedMatrix": "shared_matrix",
    "Step": "deep_narrow",
    "Topic": "topic",
    "TwoFiveOne": "two_five_one",
    "approximate_on_box": "ridge_approximation",
    "approximate_on_interval": "approximation",
    "as_matrix": "structured_matrix",
    "attend": "lookup_attention",
    "compare_distributions": "distances",
    "cross_entropy": "distances",
    "depth_separation": "sawtooth",
    "distance_to_sawtooth": "sawtooth",
    "draw_approximation": "pictures_line",
    "draw_barrier": "pictures_line",
    "draw_hidden_units": "pictures_line",
    "draw_regions": "pictures_regions",
    "draw_sawtooth": "pictures_line",
    "entropy": "distances",
    "fewest_units": "unit_counts",
    "find_obstruction": "one_layer_obstruction",
    "follow": "optimizers",
    "gelu_minimum": "activations",
    "gradient_descent": "descent",
    "kullback_leibler": "distances",
    "layer_normalize": "normalization",
    "least_squares": "convex_problems",
    "logistic_regression": "convex_problems",
    "lookup": "lookup_attention",
    "lp_distance": "distances",
    "maximum_of_three": "one_layer_obstruction",
    "measure_activation": "activations",
    "montufar_lower_bound": "region_bounds",
    "montufar_network": "montufar",
    "most_pieces": "sawtooth",
    "narrow_form": "deep_narrow",
    "narrow_network": "deep_narrow",
    "on_plane": "regions_plane",
    "one_hidden_layer": "hidden_layer",
    "polynomial_barrier": "polynomial_activation",
    "polynomial_network": "polynomial_activation",
    "product_upper_bound": "region_bounds",
    "pure_factors": "tensor_product",
    "pure_tensor": "tensor_product",
    "read_piecewise_linear": "hidden_layer",
    "regions_in_plane": "regions_plane",
    "regions_in_space": "regions_space",
    "regions_on_line": "regions_line",
    "reversing_network": "recurrent_attention",
    "sawtooth_distance_bound": "sawtooth",
    "sawtooth_network": "sawtooth",
    "shared_convolution": "structured_matrix",
    "shared_graph_layer": "weight_sharing",
    "shared_recurrence": "weight_sharing",
    "total_variation": "distances",
    "verify_obstruction": "one_layer_obstruction",
    "with_fewest_units": "hidden_layer",
    "zaslavsky_upper_bound": "region_bounds",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rankscope.constructions' has no attribute {name!r}")
    return getattr(import_module(f"rankscope.constructions.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
