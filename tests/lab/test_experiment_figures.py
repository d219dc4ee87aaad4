import numpy
import pytest

from rankscope.lab.experiments import EXPERIMENTS, DotFigure, LineFigure, Row, find_experiment
from rankscope.lab.experiments.lipschitz import draw_accuracies
from rankscope.lab.experiments.orthogonality import draw_gradients

# Line figure.


pytest.importorskip("matplotlib")


def test_seeds_are_dots_and_means_are_joined() -> None:
    from matplotlib.figure import Figure

    draw = LineFigure("size", "loss", "depth")
    rows: list[Row] = [
        {"size": 1, "loss": 2.0, "depth": 1},
        {"size": 1, "loss": 4.0, "depth": 1},
        {"size": 10, "loss": 1.0, "depth": 1},
        {"size": 10, "loss": 0.5, "depth": 2},
        {"size": None, "loss": 7.0, "depth": 2},
        {"exact rank": 18},
    ]
    assert draw.groups(rows) == {
        "depth 1": [(1.0, 2.0), (1.0, 4.0), (10.0, 1.0)],
        "depth 2": [(10.0, 0.5)],
    }
    figure = draw(rows)
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    dots, means, *_ = axes.lines
    assert numpy.array_equal(dots.get_ydata(), [2.0, 4.0, 1.0])
    assert numpy.array_equal(means.get_ydata(), [3.0, 1.0])
    assert axes.get_xscale() == "log"
    # Names stand beside the last points, in the colours of the lines, and there is no legend.
    assert axes.get_legend() is None
    assert {text.get_text() for text in axes.texts} == {"depth 1", "depth 2"}
    (interval,) = axes.collections  # only one mean is of several seeds
    assert numpy.array(interval.get_paths()[0].vertices)[:, 1].mean() == pytest.approx(3.0)


def test_baselines_are_lines_and_published_numbers_are_crosses() -> None:
    from matplotlib.figure import Figure

    rows: list[Row] = [
        {"share": 0.1, "accuracy": 80.0, "format": "cp", "published": 86.9},
        {"baseline": "majority", "accuracy": 10.0},
    ]
    figure = LineFigure("share", "accuracy", "format")(rows)
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    assert axes.get_ylabel() == "accuracy (percent)"
    assert {text.get_text() for text in axes.texts} == {"cp", "majority"}
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [numpy.array(line.get_ydata()).tolist() for line in crosses] == [[86.9]]
    assert [10.0, 10.0] in [numpy.array(line.get_ydata()).tolist() for line in axes.lines]


def test_several_columns_tell_lines_apart_together() -> None:
    draw = LineFigure("size", "loss", ("format", "protocol"))
    row: Row = {"size": 1, "loss": 2.0, "format": "svd", "protocol": "sequential"}
    assert draw.groups([row]) == {"svd, sequential": [(1.0, 2.0)]}


# Dot figure.


pytest.importorskip("matplotlib")


def test_every_setting_has_a_line_with_its_seeds_and_their_mean() -> None:
    from matplotlib.figure import Figure

    rows: list[Row] = [
        {"setting": "plain", "accuracy": 1.0, "published": 5},
        {"setting": "plain", "accuracy": 3.0, "published": 5},
        {"setting": "cp", "accuracy": 4.0, "published": None},
    ]
    draw = DotFigure(("accuracy", "published"))
    assert draw.points(rows, "published") == {"plain": [5.0, 5.0]}
    figure = draw(rows)
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    seeds, means, _, published = axes.lines
    assert numpy.array_equal(seeds.get_xdata(), [1.0, 3.0, 4.0])
    assert numpy.array_equal(seeds.get_ydata(), [0, 0, 1])
    assert numpy.array_equal(means.get_xdata(), [2.0, 4.0])
    assert numpy.array_equal(published.get_xdata(), [5.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["plain", "cp"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "accuracy (percent)",
        "published",
    ]


def test_one_column_names_its_axis() -> None:
    figure = DotFigure(("error",), is_logarithmic=True)([{"setting": "a", "error": 0.1}])
    (axes,) = figure.axes  # type: ignore[attr-defined]
    assert axes.get_xlabel() == "error"
    assert axes.get_xscale() == "log"


def test_columns_of_different_units_have_a_panel_each() -> None:
    rows: list[Row] = [
        {"setting": "characters", "nats": 2.0},
        {"setting": "pixels", "bits": 5.0},
        {"setting": "both", "nats": 3.0, "bits": 4.0},
    ]
    figure = DotFigure(("nats", "score", "bits"), has_panels=True)(rows)
    nats, bits = figure.axes  # type: ignore[attr-defined]
    assert [axes.get_xlabel() for axes in (nats, bits)] == ["nats", "bits per intensity"]
    assert [label.get_text() for label in nats.get_yticklabels()] == ["characters", "both"]
    assert [label.get_text() for label in bits.get_yticklabels()] == ["pixels", "both"]
    assert numpy.array_equal(bits.lines[0].get_xdata(), [5.0, 4.0])
    assert numpy.array_equal(bits.lines[0].get_ydata(), [0, 1])


def test_every_experiment_has_a_figure() -> None:
    assert not [name for name in EXPERIMENTS if find_experiment(name).figure is None]


# Gradient figure.


def test_rows_with_gradients_are_lines_over_the_depth() -> None:
    figure = draw_gradients(
        [
            {"layer": "ours", "mean - 1": 0.0, "gradient after 5": 1.0, "gradient after 10": 1.5},
            {"layer": "AOC", "note": "left out"},
            {"layer": "RKO", "gradient after 5": 0.25, "gradient after 10": None},
        ]
    )
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert lines == {"ours": [[5.0, 1.0], [10.0, 1.5]], "RKO": [[5.0, 0.25]]}


# Lipschitz figure.


def row(network: str, clean: float) -> Row:
    return {
        "network": network,
        "clean": clean,
        "radii": [0.1, 0.2],
        "attacked": [clean - 10, clean - 20],
        "certified": [clean - 15, clean - 35],
    }


def test_each_network_has_a_panel_and_each_seed_two_lines() -> None:
    rows = [row("a", 80.0), row("a", 82.0), *(row(name, 70.0) for name in "bcdef")]
    figure = draw_accuracies(rows)
    shown = [panel for panel in figure.axes if panel.axison]
    assert [panel.get_title() for panel in shown] == [*"abcdef"]
    lines = [line.get_xydata().tolist() for line in shown[0].get_lines()]
    assert lines == [
        [[0.0, 80.0], [0.1, 70.0], [0.2, 60.0]],
        [[0.0, 80.0], [0.1, 65.0], [0.2, 45.0]],
        [[0.0, 82.0], [0.1, 72.0], [0.2, 62.0]],
        [[0.0, 82.0], [0.1, 67.0], [0.2, 47.0]],
    ]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["after the attack", "certified"]
