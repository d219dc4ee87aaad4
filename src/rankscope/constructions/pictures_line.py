"""Pictures of functions of one variable and of the networks that equal or approach them."""

from pathlib import Path
from typing import Any

import numpy

from rankscope.constructions.approximation import LineApproximation
from rankscope.constructions.dense import dense_layers, evaluate
from rankscope.constructions.figures import (
    FIRST,
    FIRST_TINT,
    INK,
    MUTED,
    SECOND,
    THIRD,
    save_figure,
)
from rankscope.constructions.hidden_layer import one_hidden_layer
from rankscope.constructions.piecewise_linear import PiecewiseLinear
from rankscope.constructions.polynomial_activation import PolynomialBarrier
from rankscope.constructions.sawtooth import sawtooth_function
from rankscope.constructions.targets import Target

NUM_POINTS = 1201


def draw_hidden_units(function: PiecewiseLinear, path: Path | str) -> Path:
    """Draw a piecewise-linear function and the hidden units that add up to it.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    network = one_hidden_layer(function)
    first, last = dense_layers(network)
    low, high = _span(function)
    points = numpy.linspace(low, high, NUM_POINTS)
    units = first(points[:, None]).clip(min=0) * last.weight[0]

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.plot(points, units, color=MUTED, linewidth=0.9)
        axes.plot([], [], color=MUTED, linewidth=0.9, label=f"{units.shape[1]} hidden units")
        axes.plot(
            points, function(points), color=FIRST, linewidth=2.2, label="their sum, plus a constant"
        )
        kinks = function.simplified().breakpoints
        axes.plot(kinks, function(kinks), "o", color=SECOND, markersize=4, label="breakpoints")
        _frame(axes, f"{len(kinks)} breakpoints, {units.shape[1]} hidden units")

    return save_figure(path, fill, size=(6.0, 3.6))


def draw_approximation(found: LineApproximation, target: Target, path: Path | str) -> Path:
    """Draw a function, the network near it, and the error under its certified bound.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    points = numpy.linspace(*found.ends, NUM_POINTS)
    values = target.values(points[:, None])
    near = evaluate(found.network, points[:, None])[:, 0]

    def fill(figure: Any) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
        upper.fill_between(
            points,
            values - found.epsilon,
            values + found.epsilon,
            color=FIRST_TINT,
            label="within ε",
        )
        upper.plot(points, values, color=FIRST, linewidth=1.2, label="function")
        upper.plot(points, near, color=SECOND, linewidth=1.2, label="network")
        kinks = found.function.breakpoints
        upper.plot(kinks, found.function(kinks), ".", color=SECOND, markersize=4)
        _frame(upper, f"{found.num_units} hidden units")
        lower.plot(points, numpy.abs(values - near), color=SECOND, linewidth=0.9, label="error")
        lower.axhline(found.epsilon, color=INK, linewidth=0.8, label="ε")
        lower.axhline(
            found.certified_error, color=THIRD, linewidth=0.8, linestyle="--", label="certified"
        )
        _frame(lower, "")

    return save_figure(path, fill, size=(6.0, 4.6))


def draw_sawtooth(power: int, rivals: dict[str, PiecewiseLinear], path: Path | str) -> Path:
    """Draw the sawtooth on [0, 1] and functions that try to follow it.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    teeth = sawtooth_function(power)

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.plot(teeth.breakpoints, teeth.breakpoint_values, color=FIRST, linewidth=0.9)
        axes.plot([], [], color=FIRST, label=f"tent map {power} times")
        for (name, rival), colour in zip(rivals.items(), (SECOND, THIRD, INK), strict=False):
            inside = rival.breakpoints[(rival.breakpoints > 0) & (rival.breakpoints < 1)]
            points = numpy.concatenate([[0.0], inside, [1.0]])
            axes.plot(points, rival(points), color=colour, linewidth=1.6, label=name)
        axes.axhline(0.5, color=MUTED, linewidth=0.6)
        _frame(axes, f"{2**power} affine pieces from {3 * power} units")

    return save_figure(path, fill, size=(6.0, 3.4))


def draw_barrier(
    found: PolynomialBarrier, target: Target, ends: tuple[float, float], path: Path | str
) -> Path:
    """Draw the error of a nearly best polynomial, with the points that prove it is.

    Raises:
        OutputError: if the ending is not .svg, .pdf or .png, or the file cannot be written.
        MissingExtraError: if matplotlib is not installed.
    """
    points = numpy.linspace(*ends, NUM_POINTS)
    errors = target.values(points[:, None]) - found.polynomial(points)
    marked = target.values(found.points[:, None]) - found.polynomial(found.points)

    def fill(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.axhspan(
            -found.lower, found.lower, color=FIRST_TINT, label="no polynomial stays inside"
        )
        axes.plot(points, errors, color=FIRST, linewidth=1.2, label="error of a nearly best one")
        axes.plot(found.points, marked, "o", color=SECOND, markersize=4, label="points of proof")
        _frame(axes, f"degree {found.degree}: at least {found.lower:.3g} away, at any width")

    return save_figure(path, fill, size=(6.0, 3.4))


def _span(function: PiecewiseLinear) -> tuple[float, float]:
    """The breakpoints with some room on both sides."""
    if not len(function.breakpoints):
        return function.point - 1.0, function.point + 1.0
    low, high = float(function.breakpoints[0]), float(function.breakpoints[-1])
    room = max(0.25 * (high - low), 0.5)
    return low - room, high + room


def _frame(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", color=INK)
    axes.legend(fontsize=8, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.margins(x=0)
