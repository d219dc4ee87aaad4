"""Networks built by hand: sorted evaluation against `numpy.interp`, and counting affine regions.

The function with 10^5 breakpoints becomes a network; its sorted form, read off the units, is equal
to the network's plain forward on 1,000 points before it is timed on 10^6 against `numpy.interp`.
Regions are counted exactly where a theorem says how many there are.
"""

import time
from collections.abc import Callable, Iterator

import numpy
from torch import nn

from benchmarks.timing import time_ratio
from rankscope.lab.constructions.dense import Box, evaluate
from rankscope.lab.constructions.explicit_networks import montufar_network
from rankscope.lab.constructions.piecewise_linear import (
    PiecewiseLinear,
    one_hidden_layer,
    read_piecewise_linear,
)
from rankscope.lab.constructions.regions import (
    montufar_lower_bound,
    regions_in_plane,
    zaslavsky_upper_bound,
)
from rankscope.lab.constructions.regions_space import regions_in_space

NAME = "constructions"
NUM_BREAKPOINTS = 100_000
NUM_POINTS = 1_000_000


def run() -> Iterator[dict[str, object]]:
    yield _sorted_form()
    yield _regions("square, 8-8-8", 2, [8, 8, 8], lambda n: regions_in_plane(n, Box.unit(2)))
    yield _regions("square, 141", 2, [141], lambda n: regions_in_plane(n, Box.unit(2)))
    yield _regions("cube, 6-6", 3, [6, 6], lambda n: regions_in_space(n, Box.unit(3)))


def _sorted_form() -> dict[str, object]:
    draw = numpy.random.default_rng(0)
    # Uneven, but never so near that slopes, and with them the rounding, become huge.
    kinks = (
        numpy.arange(NUM_BREAKPOINTS) + draw.uniform(0, 0.5, NUM_BREAKPOINTS)
    ) / NUM_BREAKPOINTS
    values = numpy.cumsum(draw.standard_normal(NUM_BREAKPOINTS)) / 100
    start = time.process_time()
    network = one_hidden_layer(PiecewiseLinear.through(kinks, values))
    function = read_piecewise_linear(network)
    building = time.process_time() - start
    few = draw.uniform(0, 1, 1000)
    plain = evaluate(network, few[:, None])[:, 0]
    difference = float(numpy.abs(function(few) - plain).max())
    # The plain forward adds 10^5 terms of up to 10^4: rounding of 10^9 ulps at the worst.
    assert difference < 1e-7, difference
    assert numpy.abs(function(few) - numpy.interp(few, kinks, values)).max() < 1e-7
    points = draw.uniform(kinks[0], kinks[-1], NUM_POINTS)
    ratio, seconds = time_ratio(
        lambda: function(points), lambda: numpy.interp(points, kinks, values), repeats=9
    )
    return {
        "case": f"{NUM_BREAKPOINTS:,} breakpoints at {NUM_POINTS:,} points",
        "difference": f"{difference:.1e}",
        "building_seconds": round(building, 2),
        "seconds": round(seconds, 3),
        "time_over_interp": round(ratio, 2),
    }


def _regions(
    case: str, inputs: int, widths: list[int], count: Callable[[nn.Module], object]
) -> dict[str, object]:
    network = montufar_network(num_inputs=inputs, widths=widths)
    start = time.process_time()
    regions = count(network)
    seconds = time.process_time() - start
    expected = montufar_lower_bound(num_inputs=inputs, widths=widths).value
    assert getattr(regions, "num_patterns", None) == expected, (regions, expected)
    most = zaslavsky_upper_bound(num_inputs=inputs, width=sum(widths)).value
    return {"case": case, "regions": expected, "one_layer": most, "seconds": round(seconds, 2)}
