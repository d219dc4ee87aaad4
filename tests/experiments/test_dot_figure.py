import numpy
import pytest

from rankscope.experiments.catalogue import EXPERIMENTS, find_experiment
from rankscope.experiments.experiment import Row
from rankscope.experiments.figures import DotFigure

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
    assert [text.get_text() for text in legend.get_texts()] == ["accuracy", "published"]


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
    assert [axes.get_xlabel() for axes in (nats, bits)] == ["nats", "bits"]
    assert [label.get_text() for label in nats.get_yticklabels()] == ["characters", "both"]
    assert [label.get_text() for label in bits.get_yticklabels()] == ["pixels", "both"]
    assert numpy.array_equal(bits.lines[0].get_xdata(), [5.0, 4.0])
    assert numpy.array_equal(bits.lines[0].get_ydata(), [0, 1])


def test_every_experiment_has_a_figure() -> None:
    assert not [name for name in EXPERIMENTS if find_experiment(name).figure is None]
