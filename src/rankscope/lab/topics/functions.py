"""Topics: functions that ReLU networks represent or approximate, and their affine regions."""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import torch
from torch import nn

from rankscope.lab.constructions.approximation import (
    UNIVERSAL_APPROXIMATION,
    approximate_on_box,
    approximate_on_interval,
)
from rankscope.lab.constructions.dense import Box, DenseLayer, dense_layers, evaluate, relu_network
from rankscope.lab.constructions.explicit_networks import (
    NARROW,
    TELGARSKY,
    MaxMinString,
    depth_separation,
    distance_to_sawtooth,
    montufar_network,
    narrow_form,
    narrow_network,
    sawtooth_network,
)
from rankscope.lab.constructions.interval_arithmetic import (
    IntervalFunction,
    LipschitzFunction,
    cos,
    exp,
    sin,
)
from rankscope.lab.constructions.obstructions import (
    WHOLE_LINES,
    find_obstruction,
    maximum_of_three,
    polynomial_barrier,
    verify_obstruction,
)
from rankscope.lab.constructions.pictures import draw_matrices
from rankscope.lab.constructions.pictures_functions import (
    draw_approximation,
    draw_barrier,
    draw_hidden_units,
    draw_regions,
    draw_sawtooth,
)
from rankscope.lab.constructions.piecewise_linear import (
    FEWEST_UNITS,
    PiecewiseLinear,
    one_hidden_layer,
    read_piecewise_linear,
    with_fewest_units,
)
from rankscope.lab.constructions.regions import (
    MONTUFAR,
    PRODUCT,
    ZASLAVSKY,
    montufar_lower_bound,
    product_upper_bound,
    regions_in_plane,
    regions_on_line,
    zaslavsky_upper_bound,
)
from rankscope.lab.constructions.regions_space import regions_in_space
from rankscope.lab.constructions.topic import Topic, TopicResult, Value, lecture_theorem
from rankscope.lab.experiments.experiment import RunContext
from rankscope.lab.experiments.teaching_regions import SQUARE, SawtoothRival, TrainedRegions

# Topics: which functions a ReLU network is, or comes near to.


def _piecewise_linear() -> TopicResult:
    function = PiecewiseLinear.of([-1.0, 0.0, 1.0, 2.0], [-1.5, 1.0, -1.5, 0.0, -1.0], value=1.0)
    network, fewest = one_hidden_layer(function), with_fewest_units(function)
    points = numpy.linspace(-4.0, 5.0, 1801)
    error = numpy.abs(evaluate(network, points[:, None])[:, 0] - function(points)).max()
    read = read_piecewise_linear(network)
    return TopicResult(
        {
            "breakpoints": len(function.breakpoints),
            "hidden units": len(dense_layers(network)[0].bias),
            "fewest hidden units": len(dense_layers(fewest)[0].bias),
            "largest error is rounding (below 1e-14)": bool(error < 1e-14),
            "breakpoints read off the network": read.breakpoints.tolist(),
            "slopes read off the network": read.slopes.tolist(),
        },
        pictures={"units": lambda path: draw_hidden_units(function, path)},
    )


def _approximation() -> TopicResult:
    target = IntervalFunction(lambda x: sin(5 * x) * exp(-x))
    results = {
        epsilon: approximate_on_interval(target, 0.0, 3.0, epsilon=epsilon)
        for epsilon in (0.1, 0.01, 0.001)
    }
    numbers: dict[str, Value] = {}
    for epsilon, near in results.items():
        numbers[f"hidden units for an error of {epsilon:g}"] = near.num_units
        numbers[f"certified error below {epsilon:g}"] = near.certified_error
    return TopicResult(
        numbers, pictures={"error": lambda path: draw_approximation(results[0.1], target, path)}
    )


def _approximation_on_a_square() -> TopicResult:
    target = IntervalFunction(lambda x, y: cos(2 * x) * y + x)
    result = approximate_on_box(target, Box.unit(2), epsilon=0.1)
    ticks = numpy.linspace(0.0, 1.0, 41)
    points = numpy.stack(numpy.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    values = target.values(points)
    near = evaluate(result.network, points)[:, 0]
    pictures = {
        "function": values.reshape(41, 41)[::-1],
        "network": near.reshape(41, 41)[::-1],
        "error": numpy.abs(values - near).reshape(41, 41)[::-1],
    }
    return TopicResult(
        {
            "asked for an error of": result.epsilon,
            "cells of the grid that certifies": int(numpy.prod(result.grid)),
            "certified error is below": bool(result.certified_error <= result.epsilon),
            "error on 1,681 points is below": bool(
                numpy.abs(values - near).max() <= result.certified_error
            ),
        },
        measured={
            "exponentials": len(result.exponentials.coefficients),
            "hidden units": len(dense_layers(result.network)[0].bias),
            "certified error": result.certified_error,
        },
        pictures={"maps": lambda path: draw_matrices(pictures, path)},
    )


def _narrow() -> TopicResult:
    angles = 2 * numpy.pi * numpy.arange(7) / 7
    planes = numpy.stack([numpy.cos(angles), numpy.sin(angles)], axis=1)
    string = MaxMinString.maximum(planes, numpy.full(7, -0.25))
    network = narrow_network(string, SQUARE)
    wide = one_hidden_layer(PiecewiseLinear.of([0.0, 0.5, 1.0], [0.0, 2.0, -2.0, 0.0]))
    deep = narrow_form(wide, Box.unit(1))
    points = numpy.random.default_rng(0).uniform(-1.0, 1.0, (1000, 2))
    places = numpy.linspace(0.0, 1.0, 1001)[:, None]
    return TopicResult(
        {
            "affine functions, of which the largest is taken": 7,
            "inputs": 2,
            "width of the network": max(len(layer.bias) for layer in dense_layers(network)[:-1]),
            "affine layers": len(dense_layers(network)),
            "error is rounding (below 1e-14)": bool(
                numpy.abs(evaluate(network, points)[:, 0] - string(points)).max() < 1e-14
            ),
            "a hat with one hidden layer has units": len(dense_layers(wide)[0].bias),
            "as a deep network it has width": max(
                len(layer.bias) for layer in dense_layers(deep)[:-1]
            ),
            "its error is rounding, too": bool(
                numpy.abs(evaluate(deep, places) - evaluate(wide, places)).max() < 1e-14
            ),
        },
        pictures={
            "pieces": lambda path: draw_regions(
                regions_in_plane(network, SQUARE), path, title="7 affine pieces from width 3"
            )
        },
    )


def _obstruction() -> TopicResult:
    network = maximum_of_three()
    result = find_obstruction(network, SQUARE)
    assert result is not None, "max(0, x, y) has one"
    return TopicResult(
        {
            "function": "max(0, x, y)",
            "hidden layers of the network that equals it": len(dense_layers(network)) - 1,
            "certificate holds in fractions": verify_obstruction(network, result),
            "segment with one jump": _segment(result.first.segment),
            "segment of the same line with another": _segment(result.second.segment),
        },
        pictures={
            "breaks": lambda path: draw_regions(
                regions_in_plane(network, SQUARE),
                path,
                title="Breaks are half-lines, not lines",
                obstruction=result,
            )
        },
    )


def _segment(segment: object) -> str:
    assert isinstance(segment, tuple)
    return " to ".join(f"({float(x):g}, {float(y):g})" for x, y in segment)


def _polynomials() -> TopicResult:
    target = LipschitzFunction(numpy.abs, 1.0)
    barriers = {
        degree: polynomial_barrier(numpy.abs, -1.0, 1.0, degree=degree) for degree in (2, 4, 8, 16)
    }
    numbers: dict[str, Value] = {"function": "|x| on [-1, 1], two ReLU units"}
    for degree, result in barriers.items():
        numbers[f"degree {degree}: no width is nearer than"] = result.lower
        numbers[f"degree {degree}: reached"] = result.measured
    return TopicResult(
        numbers,
        pictures={"barrier": lambda path: draw_barrier(barriers[8], target, (-1.0, 1.0), path)},
    )


EXPRESSIVITY = (
    Topic(
        "piecewise-linear",
        "Piecewise-linear functions are networks",
        "Every continuous piecewise-linear function of one variable is a ReLU network with one "
        "hidden layer, exactly: k + 1 units for k breakpoints. k units are needed; they are "
        "enough exactly when minus the leftmost slope is a sum of some of the jumps of the slope. "
        "Conversely the breakpoints and slopes can be read off the network.",
        FEWEST_UNITS,
        _piecewise_linear,
    ),
    Topic(
        "approximation",
        "Universal approximation in one dimension",
        "A continuous function on an interval is uniformly continuous, so straight pieces between "
        "enough breakpoints stay within any ε of it, and they are a network with one hidden "
        "layer. Breakpoints are put where the function bends; the error is certified by "
        "evaluating it on intervals.",
        UNIVERSAL_APPROXIMATION,
        _approximation,
    ),
    Topic(
        "approximation-in-space",
        "Universal approximation in several dimensions",
        "Sums of exponentials of inner products are dense in the continuous functions of a "
        "compact set (Stone-Weierstrass). Each exponential is a function of one variable, so it "
        "is near a ReLU network, and so is the sum. The error is certified on a grid of boxes.",
        UNIVERSAL_APPROXIMATION,
        _approximation_on_a_square,
    ),
    Topic(
        "deep-and-narrow",
        "Width d + 1 is enough when depth is free",
        "The largest of n affine functions of d variables, and every string of maxima and minima "
        "of them, is on a box a ReLU network of width d + 1 with n affine layers. Every network "
        "with one hidden layer is on a box a deep network of width d + 2.",
        NARROW,
        _narrow,
    ),
    Topic(
        "one-layer-obstruction",
        "What one hidden layer cannot be",
        "On the plane, a network with one hidden layer breaks along whole lines, with one and the "
        "same jump of the gradient. A function whose jump changes along a line is no such "
        "network, and two places of the line are a proof that can be checked in fractions. max(0, "
        "x, y) is an example, with two hidden layers.",
        WHOLE_LINES,
        _obstruction,
    ),
    Topic(
        "polynomial-activation",
        "Why the activation must not be a polynomial",
        "A network with one hidden layer and a polynomial activation of degree N is a polynomial "
        "of degree at most N at every width, so it stays away from every other function. N + 2 "
        "points at which the error alternates prove how far.",
        lecture_theorem("Theorem 1.5, first half", "one hidden layer", "activation of degree N"),
        _polynomials,
    ),
)


# Topics: how width and depth buy affine pieces.


LARGE = Box.of([-50.0, -50.0], [50.0, 50.0])


def _random(*sizes: int) -> nn.Sequential:
    """Weights and biases of order one, the same on every machine."""
    draw = numpy.random.default_rng(1)
    layers = [
        DenseLayer(draw.normal(size=(outputs, inputs)), draw.normal(size=outputs))
        for inputs, outputs in itertools.pairwise(sizes)
    ]
    return relu_network(layers)


def _sawtooth() -> TopicResult:
    separation = depth_separation(2)
    with TemporaryDirectory() as folder:
        rival = SawtoothRival(2, 0, steps=400).train(RunContext(Path(folder), None, 60.0))
    result = distance_to_sawtooth(rival, separation.power)
    teeth = regions_on_line(sawtooth_network(separation.power), ends=(0.0, 1.0))
    rivals = {"trained, 2 layers, 4 units": regions_on_line(rival, ends=(0.0, 1.0)).function()}
    return TopicResult(
        {
            "hidden layers of rivals, at most": separation.num_layers,
            "hidden units of rivals, at most": separation.num_nodes,
            "tent map, times": separation.power,
            "pieces of the sawtooth": teeth.num_affine_pieces,
            "pieces of a rival, at most": separation.competitor_pieces,
            "every rival is at least so far away": str(separation.distance),
            "1/32 is less": bool(separation.distance >= 1 / 32),
        },
        measured={"distance of a trained rival": result.distance, "its pieces": result.num_pieces},
        pictures={"rival": lambda path: draw_sawtooth(separation.power, rivals, path)},
    )


def _affine_regions() -> TopicResult:
    network = _random(2, 6, 5, 1)
    plane = regions_in_plane(network, LARGE)
    space = regions_in_space(_random(3, 5, 3, 1))
    line = regions_on_line(_random(1, 6, 5, 1), exactly=True)
    return TopicResult(
        {
            "plane, layers of 6 and 5 units: activation patterns": plane.num_patterns,
            "plane: maximal affine pieces": plane.num_affine_pieces,
            "space, layers of 5 and 3 units: activation patterns": len(space.regions),
            "space: maximal affine pieces": space.num_affine_pieces,
            "space: regions that fractions did not prove": space.num_unproved,
            "line, layers of 6 and 5 units, in fractions: patterns": line.num_patterns,
            "line: maximal affine pieces": line.num_affine_pieces,
        },
        pictures={
            "plane": lambda path: draw_regions(
                regions_in_plane(network, Box.of([-4.0, -4.0], [4.0, 4.0])), path
            )
        },
    )


def _bounds() -> TopicResult:
    one, deep = _random(2, 8, 1), _random(2, 6, 5, 1)
    result = regions_in_plane(one, LARGE)
    return TopicResult(
        {
            "one layer of 8 units on the plane, at most": str(
                zaslavsky_upper_bound(num_inputs=2, width=8).magnitude
            ),
            "counted at random weights": result.num_patterns,
            "layers of 6 and 5 units, at most": str(
                product_upper_bound(num_inputs=2, widths=(6, 5)).magnitude
            ),
            "counted at random weights, deep": regions_in_plane(deep, LARGE).num_patterns,
            "one layer of 11 units instead, at most": str(
                zaslavsky_upper_bound(num_inputs=2, width=11).magnitude
            ),
        },
        pictures={
            "lines": lambda path: draw_regions(
                regions_in_plane(one, Box.of([-3.0, -3.0], [3.0, 3.0])),
                path,
                title="8 units are 8 lines; some regions are farther out",
            )
        },
    )


def _montufar() -> TopicResult:
    network = montufar_network(num_inputs=2, widths=(4, 4, 5))
    result = regions_in_plane(network, Box.unit(2))
    return TopicResult(
        {
            "layers": "4, 4 and 5 units on the plane",
            "lower bound for the best weights": str(
                montufar_lower_bound(num_inputs=2, widths=(4, 4, 5)).magnitude
            ),
            "counted in the network built for it": result.num_patterns,
            "its maximal affine pieces": result.num_affine_pieces,
            "upper bound for all weights": str(
                product_upper_bound(num_inputs=2, widths=(4, 4, 5)).magnitude
            ),
        },
        pictures={"folds": lambda path: draw_regions(result, path)},
    )


def _trained() -> TopicResult:
    with TemporaryDirectory() as folder:
        context = RunContext(Path(folder), None, 60.0)
        before, _ = TrainedRegions((8, 8), 0, 0).train(context)
        after, accuracy = TrainedRegions((8, 8), 0, 400).train(context)
    counts = [regions_in_plane(network, SQUARE) for network in (before, after)]
    with torch.no_grad():
        middle = float(after(torch.zeros(1, 2, dtype=torch.float64)))
    return TopicResult(
        {"affine pieces, at most": str(product_upper_bound(num_inputs=2, widths=(8, 8)).magnitude)},
        measured={
            "affine pieces before training": counts[0].num_affine_pieces,
            "affine pieces after 400 steps": counts[1].num_affine_pieces,
            "accuracy": accuracy,
            "the middle is inside the circle": middle > 0,
        },
        pictures={
            "before": lambda path: draw_regions(counts[0], path, title="Before training"),
            "after": lambda path: draw_regions(counts[1], path, title="After 400 steps"),
        },
    )


REGIONS = (
    Topic(
        "sawtooth",
        "What depth can do and width cannot",
        "The tent map applied m times is a ReLU network with 3m units and 2^m affine pieces on "
        "[0, 1]. For L ≥ 2 and m = L² + 2, every ReLU network with at most L hidden layers and "
        "2^L units has too few pieces to follow: its L1 distance is at least 1/32. Trained rivals "
        "stay above the bound, as they must.",
        TELGARSKY,
        _sawtooth,
    ),
    Topic(
        "affine-regions",
        "Affine regions, counted exactly",
        "A ReLU network is affine wherever its activation pattern does not change. There are two "
        "counts: activation patterns whose region has an interior, and maximal connected pieces "
        "on which the function is affine, which can be fewer. On lines and planes regions are cut "
        "layer by layer; in more dimensions linear programs find them and fractions prove them.",
        PRODUCT,
        _affine_regions,
    ),
    Topic(
        "region-bounds",
        "How many regions there can be",
        "One layer of n units cuts R^d into at most C(n, 0) + … + C(n, d) regions, and random "
        "weights do. Deep networks have at most the product of such sums, layer by layer.",
        ZASLAVSKY,
        _bounds,
    ),
    Topic(
        "montufar",
        "Folding: a network that attains the lower bound",
        "Each layer but the last can fold the unit box onto itself, ⌊n/d⌋ times in each "
        "coordinate, so that what later layers draw appears in every copy. The regions multiply: "
        "depth buys them exponentially. The network built here has exactly as many as the bound "
        "says.",
        MONTUFAR,
        _montufar,
    ),
    Topic(
        "trained-regions",
        "Regions of a trained network",
        "Training moves the breaks of a network and makes new pieces where they are useful; it "
        "learns the inside of a circle with far fewer than its sizes allow.",
        PRODUCT,
        _trained,
    ),
)

TOPICS = {topic.name: topic for topic in (*EXPRESSIVITY, *REGIONS)}
