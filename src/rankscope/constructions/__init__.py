"""Networks built by hand, and the theorems that they are.

Names are imported when they are first used: torch takes its time to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, which do not run __getattr__
    from rankscope.constructions.approximation import (
        approximate_on_interval as approximate_on_interval,
    )
    from rankscope.constructions.box import Box as Box
    from rankscope.constructions.deep_narrow import MaxMinString as MaxMinString
    from rankscope.constructions.deep_narrow import Step as Step
    from rankscope.constructions.deep_narrow import narrow_form as narrow_form
    from rankscope.constructions.deep_narrow import narrow_network as narrow_network
    from rankscope.constructions.hidden_layer import one_hidden_layer as one_hidden_layer
    from rankscope.constructions.hidden_layer import read_piecewise_linear as read_piecewise_linear
    from rankscope.constructions.hidden_layer import with_fewest_units as with_fewest_units
    from rankscope.constructions.montufar import montufar_network as montufar_network
    from rankscope.constructions.one_layer_obstruction import find_obstruction as find_obstruction
    from rankscope.constructions.one_layer_obstruction import maximum_of_three as maximum_of_three
    from rankscope.constructions.one_layer_obstruction import (
        verify_obstruction as verify_obstruction,
    )
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
    from rankscope.constructions.region_bounds import montufar_lower_bound as montufar_lower_bound
    from rankscope.constructions.region_bounds import product_upper_bound as product_upper_bound
    from rankscope.constructions.region_bounds import zaslavsky_upper_bound as zaslavsky_upper_bound
    from rankscope.constructions.regions_line import regions_on_line as regions_on_line
    from rankscope.constructions.regions_plane import on_plane as on_plane
    from rankscope.constructions.regions_plane import regions_in_plane as regions_in_plane
    from rankscope.constructions.regions_space import regions_in_space as regions_in_space
    from rankscope.constructions.ridge_approximation import approximate_on_box as approximate_on_box
    from rankscope.constructions.sawtooth import depth_separation as depth_separation
    from rankscope.constructions.sawtooth import distance_to_sawtooth as distance_to_sawtooth
    from rankscope.constructions.sawtooth import most_pieces as most_pieces
    from rankscope.constructions.sawtooth import sawtooth_distance_bound as sawtooth_distance_bound
    from rankscope.constructions.sawtooth import sawtooth_network as sawtooth_network
    from rankscope.constructions.targets import IntervalFunction as IntervalFunction
    from rankscope.constructions.targets import LipschitzFunction as LipschitzFunction
    from rankscope.constructions.unit_counts import FewestUnits as FewestUnits
    from rankscope.constructions.unit_counts import fewest_units as fewest_units

_HOMES = {
    "Box": "box",
    "FewestUnits": "unit_counts",
    "IntervalFunction": "targets",
    "LipschitzFunction": "targets",
    "MaxMinString": "deep_narrow",
    "PiecewiseLinear": "piecewise_linear",
    "Step": "deep_narrow",
    "approximate_on_box": "ridge_approximation",
    "approximate_on_interval": "approximation",
    "depth_separation": "sawtooth",
    "distance_to_sawtooth": "sawtooth",
    "draw_approximation": "pictures_line",
    "draw_barrier": "pictures_line",
    "draw_hidden_units": "pictures_line",
    "draw_regions": "pictures_regions",
    "draw_sawtooth": "pictures_line",
    "fewest_units": "unit_counts",
    "find_obstruction": "one_layer_obstruction",
    "maximum_of_three": "one_layer_obstruction",
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
    "read_piecewise_linear": "hidden_layer",
    "regions_in_plane": "regions_plane",
    "regions_in_space": "regions_space",
    "regions_on_line": "regions_line",
    "sawtooth_distance_bound": "sawtooth",
    "sawtooth_network": "sawtooth",
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
