import numpy
import pytest

from rankscope.experiments.experiment import Row
from rankscope.experiments.figures import LineFigure

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
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["depth 1", "depth 2"]


def test_several_columns_tell_lines_apart_together() -> None:
    draw = LineFigure("size", "loss", ("format", "protocol"))
    row: Row = {"size": 1, "loss": 2.0, "format": "svd", "protocol": "sequential"}
    assert draw.groups([row]) == {"svd, sequential": [(1.0, 2.0)]}
