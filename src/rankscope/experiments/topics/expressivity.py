"""Topics: which functions a ReLU network is, or comes near to."""

import numpy

from rankscope.constructions.approximation import UNIVERSAL_APPROXIMATION, approximate_on_interval
from rankscope.constructions.box import Box
from rankscope.constructions.deep_narrow import NARROW, MaxMinString, narrow_form, narrow_network
from rankscope.constructions.dense import dense_layers, evaluate
from rankscope.constructions.hidden_layer import (
    one_hidden_layer,
    read_piecewise_linear,
    with_fewest_units,
)
from rankscope.constructions.interval_arithmetic import cos, exp, sin
from rankscope.constructions.one_layer_obstruction import (
    WHOLE_LINES,
    find_obstruction,
    maximum_of_three,
    verify_obstruction,
)
from rankscope.constructions.pictures_line import (
    draw_approximation,
    draw_barrier,
    draw_hidden_units,
)
from rankscope.constructions.pictures_plots import draw_matrices
from rankscope.constructions.pictures_regions import draw_regions
from rankscope.constructions.piecewise_linear import PiecewiseLinear
from rankscope.constructions.polynomial_activation import polynomial_barrier
from rankscope.constructions.regions_plane import regions_in_plane
from rankscope.constructions.ridge_approximation import approximate_on_box
from rankscope.constructions.targets import IntervalFunction, LipschitzFunction
from rankscope.constructions.topic import Shown, Topic, Value
from rankscope.constructions.unit_counts import FEWEST_UNITS
from rankscope.experiments.topics.lecture import in_lecture

SQUARE = Box.of([-1.0, -1.0], [1.0, 1.0])


def _piecewise_linear() -> Shown:
    function = PiecewiseLinear.of([-1.0, 0.0, 1.0, 2.0], [-1.5, 1.0, -1.5, 0.0, -1.0], value=1.0)
    network, fewest = one_hidden_layer(function), with_fewest_units(function)
    points = numpy.linspace(-4.0, 5.0, 1801)
    error = numpy.abs(evaluate(network, points[:, None])[:, 0] - function(points)).max()
    read = read_piecewise_linear(network)
    return Shown(
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


def _approximation() -> Shown:
    target = IntervalFunction(lambda x: sin(5 * x) * exp(-x))
    found = {
        epsilon: approximate_on_interval(target, 0.0, 3.0, epsilon=epsilon)
        for epsilon in (0.1, 0.01, 0.001)
    }
    numbers: dict[str, Value] = {}
    for epsilon, near in found.items():
        numbers[f"hidden units for an error of {epsilon:g}"] = near.num_units
        numbers[f"certified error below {epsilon:g}"] = near.certified_error
    return Shown(
        numbers, pictures={"error": lambda path: draw_approximation(found[0.1], target, path)}
    )


def _approximation_on_a_square() -> Shown:
    target = IntervalFunction(lambda x, y: cos(2 * x) * y + x)
    found = approximate_on_box(target, Box.unit(2), epsilon=0.1)
    ticks = numpy.linspace(0.0, 1.0, 41)
    points = numpy.stack(numpy.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    values = target.values(points)
    near = evaluate(found.network, points)[:, 0]
    pictures = {
        "function": values.reshape(41, 41)[::-1],
        "network": near.reshape(41, 41)[::-1],
        "error": numpy.abs(values - near).reshape(41, 41)[::-1],
    }
    return Shown(
        {
            "asked for an error of": found.epsilon,
            "cells of the grid that certifies": int(numpy.prod(found.grid)),
            "certified error is below": bool(found.certified_error <= found.epsilon),
            "error on 1,681 points is below": bool(
                numpy.abs(values - near).max() <= found.certified_error
            ),
        },
        measured={
            "exponentials": len(found.exponentials.coefficients),
            "hidden units": len(dense_layers(found.network)[0].bias),
            "certified error": found.certified_error,
        },
        pictures={"maps": lambda path: draw_matrices(pictures, path)},
    )


def _narrow() -> Shown:
    angles = 2 * numpy.pi * numpy.arange(7) / 7
    planes = numpy.stack([numpy.cos(angles), numpy.sin(angles)], axis=1)
    string = MaxMinString.maximum(planes, numpy.full(7, -0.25))
    network = narrow_network(string, SQUARE)
    wide = one_hidden_layer(PiecewiseLinear.of([0.0, 0.5, 1.0], [0.0, 2.0, -2.0, 0.0]))
    deep = narrow_form(wide, Box.unit(1))
    points = numpy.random.default_rng(0).uniform(-1.0, 1.0, (1000, 2))
    places = numpy.linspace(0.0, 1.0, 1001)[:, None]
    return Shown(
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


def _obstruction() -> Shown:
    network = maximum_of_three()
    found = find_obstruction(network, SQUARE)
    assert found is not None, "max(0, x, y) has one"
    return Shown(
        {
            "function": "max(0, x, y)",
            "hidden layers of the network that equals it": len(dense_layers(network)) - 1,
            "certificate holds in fractions": verify_obstruction(network, found),
            "segment with one jump": _segment(found.first.segment),
            "segment of the same line with another": _segment(found.second.segment),
        },
        pictures={
            "breaks": lambda path: draw_regions(
                regions_in_plane(network, SQUARE),
                path,
                title="Breaks are half-lines, not lines",
                obstruction=found,
            )
        },
    )


def _segment(segment: object) -> str:
    assert isinstance(segment, tuple)
    return " to ".join(f"({float(x):g}, {float(y):g})" for x, y in segment)


def _polynomials() -> Shown:
    target = LipschitzFunction(numpy.abs, 1.0)
    barriers = {
        degree: polynomial_barrier(numpy.abs, -1.0, 1.0, degree=degree) for degree in (2, 4, 8, 16)
    }
    numbers: dict[str, Value] = {"function": "|x| on [-1, 1], two ReLU units"}
    for degree, found in barriers.items():
        numbers[f"degree {degree}: no width is nearer than"] = found.lower
        numbers[f"degree {degree}: reached"] = found.measured
    return Shown(
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
        in_lecture("Theorem 1.5, first half", "one hidden layer", "activation of degree N"),
        _polynomials,
    ),
)
