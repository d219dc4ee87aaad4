import itertools
import re
from pathlib import Path
from typing import Any

import numpy
import pytest

from rankscope.drawing import write_figure
from rankscope.lab.experiments import (
    EXPERIMENTS,
    CurveFigure,
    DotFigure,
    Interval,
    LineFigure,
    Panel,
    Row,
    find_experiment,
    read_outcome,
    table_of,
)
from rankscope.lab.experiments.figure_parts import COLOURS, MUTED
from rankscope.lab.experiments.lipschitz import FIGURE as LIPSCHITZ_FIGURE
from rankscope.lab.experiments.orthogonality import draw_gradients

pytest.importorskip("matplotlib")

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def drawn(draw: Any, rows: list[Row], folder: Path) -> Any:
    """The figure as it is written to a file, laid out."""
    figures: list[Any] = []

    def make() -> Any:
        figures.append(draw(rows))
        return figures[0]

    write_figure(folder / "figure.svg", make)
    return figures[0]


def boxes(axes: Any) -> dict[str, Any]:
    """Where the names on an axes lie, without their leaders."""
    from matplotlib.text import Text

    axes.figure.draw_without_rendering()
    return {
        f"{number} {text.get_text()}": Text.get_window_extent(text)
        for number, text in enumerate(axes.texts)
        if text.get_text()
    }


def require_apart(axes: Any) -> None:
    for (one, box), (other, another) in itertools.combinations(boxes(axes).items(), 2):
        assert not box.overlaps(another), f"{one} lies over {other}"


def names(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def above(figure: Any) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def level_lines(axes: Any) -> list[float]:
    """The heights of dotted lines."""
    return [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":"]


def upright_lines(axes: Any) -> list[float]:
    return [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]


# Line figure.


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
    # Names stand beside the last points, in the colours of the lines; marks are explained above.
    assert axes.get_legend() is None
    assert set(names(axes)) == {"depth 1", "depth 2"}
    assert above(figure) == ["one seed", "95 % interval of the mean"]
    (interval,) = axes.collections  # only one mean is of several seeds
    ends = numpy.array(interval.get_paths()[0].vertices)[:, 1]
    wanted = Interval.of([2.0, 4.0], seeds=2)
    assert ends == pytest.approx([wanted.mean - wanted.half_width, wanted.mean + wanted.half_width])


def test_baselines_are_lines_and_published_numbers_are_crosses() -> None:
    from matplotlib.figure import Figure

    rows: list[Row] = [
        {"share": 0.1, "accuracy": 80.0, "format": "cp", "published": 86.9},
        {"share": 0.2, "accuracy": 88.0, "format": "cp"},
        {"baseline": "logistic-regression", "accuracy": 79.0},
        {"baseline": "majority", "accuracy": 10.0},
    ]
    figure = LineFigure("share", "accuracy", "format")(rows)
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    assert axes.get_ylabel() == "accuracy (percent)"
    # A baseline far from all would squeeze them: it is named at the edge.
    assert set(names(axes)) == {"CP", "logistic regression", "↓ most frequent class: 10"}
    assert level_lines(axes) == [79.0]
    assert axes.get_ylim()[0] > 70
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [numpy.array(line.get_ydata()).tolist() for line in crosses] == [[86.9]]
    assert above(figure) == ["published"]


def test_several_columns_tell_lines_apart_together() -> None:
    draw = LineFigure("size", "loss", ("format", "protocol"))
    row: Row = {"size": 1, "loss": 2.0, "format": "svd", "protocol": "end-to-end"}
    assert draw.groups([row]) == {"SVD, end to end": [(1.0, 2.0)]}


RULES = LineFigure(
    "share",
    "perplexity",
    panels=(Panel("", r"[\d.]+-(.+)", levels="(dense)"),),
    labels={"ours": "ours", "ours-repaired": "ours, repaired", "svd": "plain SVD"},
    dashed="-repaired",
    top=100.0,
)


def rule_rows() -> list[Row]:
    values: dict[str, tuple[float, float]] = {
        "svd": (2e6, 3e8),
        "ours": (40.0, 60.0),
        "ours-repaired": (35.0, 50.0),
    }
    rows: list[Row] = [{"setting": "dense", "share": 1.0, "perplexity": 30.0}]
    for rule, both in values.items():
        for share, value in zip((0.9, 0.8), both, strict=True):
            rows.append({"setting": f"{share}-{rule}", "share": share, "perplexity": value})
    return rows


def test_settings_name_lines_and_variants_are_dashed_in_the_same_colour(tmp_path: Path) -> None:
    (axes,) = drawn(RULES, rule_rows(), tmp_path).axes
    styles = {
        line.get_label(): (line.get_color(), line.get_linestyle())
        for line in axes.lines
        if not line.get_label().startswith("_")
    }
    assert styles == {"ours": (COLOURS[0], "-"), "ours, repaired": (COLOURS[0], "--")}
    assert level_lines(axes) == [30.0]
    require_apart(axes)


def test_values_above_the_end_of_the_axis_are_written_as_numbers(tmp_path: Path) -> None:
    (axes,) = drawn(RULES, rule_rows(), tmp_path).axes
    assert axes.get_ylim()[1] == 100.0
    assert {"plain SVD", "↑ 2 million", "↑ 300 million"} <= set(names(axes))


def test_names_of_crowded_lines_do_not_lie_over_each_other(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"size": size, "loss": 1.0 + 0.01 * depth + 1 / size, "depth": depth}
        for depth in range(8)
        for size in (1, 10, 100 if depth % 3 else 50)
    ]
    rows += [{"baseline": name, "loss": 1.01} for name in ("one", "other")]
    (axes,) = drawn(LineFigure("size", "loss", "depth"), rows, tmp_path).axes
    # Two lines at one height have one name.
    assert len(names(axes)) == 8 + 1
    assert "one and other" in names(axes)
    require_apart(axes)


def test_lines_that_nobody_can_tell_apart_have_one_name(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"size": size, "loss": loss * size, "kind": kind}
        for kind, loss in (("a", 1.0), ("b", 1.0), ("c", 2.0))
        for size in (1, 10)
    ]
    (axes,) = drawn(LineFigure("size", "loss", "kind"), rows, tmp_path).axes
    assert sorted(names(axes)) == ["a, b", "c"]


def test_panels_have_axes_and_baselines_of_their_own(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"setting": f"{data}-{kind}-{noise}", "noise": noise, "accuracy": base - 10 * noise}
        for data, base in (("digits", 90.0), ("mnist", 50.0))
        for kind in ("plain", "cp")
        for noise in (0.0, 0.5, 1.0)
    ]
    rows += [{"baseline": "digits-linear", "accuracy": 88.0}]
    panels = tuple(
        Panel(data, rf"{data}-(.+)-[\d.]+", baselines=f"{data}-(.+)")
        for data in ("digits", "mnist")
    )
    draw = LineFigure("noise", "accuracy", is_logarithmic=False, panels=panels)
    figure = drawn(draw, rows, tmp_path)
    digits, mnist = figure.axes
    assert [axes.get_title(loc="left") for axes in (digits, mnist)] == ["Digits", "Mnist"]
    assert level_lines(digits) == [88.0]
    assert level_lines(mnist) == []
    assert digits.get_ylim()[0] > mnist.get_ylim()[1]
    # Names that all panels share stand above them, once.
    assert above(figure) == ["plain", "CP"]
    assert names(digits) == ["linear"]


def test_rows_of_no_panel_are_drawn_all_the_same() -> None:
    rows: list[Row] = [
        {"setting": "known-a", "size": 1, "loss": 2.0},
        {"setting": "unknown", "size": 1, "loss": 3.0},
    ]
    figure: Any = LineFigure("size", "loss", panels=(Panel("known", "known-(.+)"),))(rows)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Known", "Other settings"]


@pytest.mark.parametrize(
    "draw",
    [
        LineFigure("size", "loss", "kind", panels=(Panel("a", "a-(.+)"), Panel("b", "b-(.+)"))),
        DotFigure(("loss",), panels=(Panel("a", "a-(.+)"), Panel("b", "b-(.+)"))),
        CurveFigure(("losses",), ("epoch", "loss"), panels=(Panel("a", "a-(.+)"),)),
    ],
)
def test_experiments_that_are_not_finished_can_be_drawn(draw: Any, tmp_path: Path) -> None:
    nothing: list[Row] = [{"setting": "a-x", "seed": 0, "size": 1, "kind": "x", "loss": None}]
    some: list[Row] = [
        {"setting": "b-x", "seed": 0, "size": 1, "kind": "x", "loss": 2.0, "losses": [2.0, 1.0]}
    ]
    for rows in ([], nothing, some, nothing + some):
        assert drawn(draw, rows, tmp_path).axes


# Dot figure.


DOTS = DotFigure(
    ("accuracy",),
    panels=(
        Panel("small", "small-(.+)", baselines="small-(.+)"),
        Panel("large", "large-(.+)", baselines="large-(.+)"),
    ),
    labels={"equal-train": "tensor train, equal cores"},
)


def dot_rows() -> list[Row]:
    rows: list[Row] = [
        {"setting": f"{size}-{form}", "seed": seed, "accuracy": base + shift + 0.1 * seed}
        for size, base in (("small", 90.0), ("large", 97.0))
        for form, shift in (("shallow", 0.0), ("equal-train", 1.0))
        for seed in range(3)
    ]
    for size, level in (("small", 90.5), ("large", 97.5)):
        rows += [
            {"setting": f"baseline-{size}-linear", "seed": None, "baseline": f"{size}-linear",
             "accuracy": level},
            {"setting": f"baseline-{size}-majority", "seed": None, "baseline": f"{size}-majority",
             "accuracy": 10.0},
        ]  # fmt: skip
    return rows


def test_every_setting_has_a_row_with_its_seeds_and_their_mean(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"setting": "plain", "accuracy": 1.0, "published": 5},
        {"setting": "plain", "accuracy": 3.0, "published": 5},
        {"setting": "cp", "accuracy": 4.0, "published": None},
    ]
    draw = DotFigure(("accuracy", "published"))
    assert draw.points(rows, "published") == {"plain": [5.0, 5.0]}
    figure = drawn(draw, rows, tmp_path)
    (axes,) = figure.axes
    marks = {line.get_marker(): line for line in axes.lines}
    assert numpy.array_equal(marks["."].get_xdata(), [1.0, 3.0])  # one seed is its own mean
    assert numpy.array_equal(marks["o"].get_xdata(), [2.0, 4.0])
    assert numpy.array_equal(marks["o"].get_ydata(), [0, 1])
    assert numpy.array_equal(marks["x"].get_xdata(), [5.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["plain", "CP"]
    assert above(figure) == [
        "accuracy (percent)", "published", "one seed", "95 % interval of the mean",
    ]  # fmt: skip


def test_one_column_names_its_axis() -> None:
    figure: Any = DotFigure(("error",), is_logarithmic=True)([{"setting": "a", "error": 0.1}])
    (axes,) = figure.axes
    assert axes.get_xlabel() == "error"
    assert axes.get_xscale() == "log"


def test_panels_may_show_columns_of_different_units() -> None:
    rows: list[Row] = [
        {"setting": "language-a", "test loss": 2.0},
        {"setting": "pixels-a", "bits": 5.0},
    ]
    panels = (Panel("", "language-(.+)"), Panel("", "pixels-(.+)", across="bits"))
    figure: Any = DotFigure(("test loss",), panels=panels)(rows)
    assert [axes.get_xlabel() for axes in figure.axes] == ["test loss (nats)", "bits per intensity"]


def test_settings_are_named_in_words_and_baselines_are_lines_only(tmp_path: Path) -> None:
    small, large = drawn(DOTS, dot_rows(), tmp_path).axes
    for axes, level in ((small, 90.5), (large, 97.5)):
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels == ["shallow", "tensor train, equal cores"]
        assert upright_lines(axes) == [level]
        assert names(axes) == [f"linear: {level:g}", "← most frequent class: 10"]
        assert axes.get_xlim()[0] > level - 2  # the weak baseline squeezes nothing
        require_apart(axes)


def test_intervals_are_those_of_the_table(tmp_path: Path) -> None:
    rows = dot_rows()
    printed = [row["accuracy"] for row in table_of("", rows).rows]
    wanted = [one for one in printed if isinstance(one, Interval)]
    ends = [
        sorted(float(place) for place, _ in segment)
        for axes in drawn(DOTS, rows, tmp_path).axes
        for interval in axes.collections
        for segment in interval.get_segments()
    ]
    assert len(ends) == 4
    for (low, high), interval in zip(ends, wanted, strict=True):
        assert low == pytest.approx(interval.mean - interval.half_width)
        assert high == pytest.approx(interval.mean + interval.half_width)


def test_baselines_of_several_seeds_have_bands_of_their_intervals() -> None:
    rows: list[Row] = [{"setting": "a", "size": size, "accuracy": 90.0 + size} for size in (1, 10)]
    rows += [
        {"setting": "baseline-b", "seed": seed, "baseline": "b", "accuracy": 93.0 + seed}
        for seed in range(3)
    ]
    interval = Interval.of([93.0, 94.0, 95.0], seeds=3)
    wanted = [interval.mean - interval.half_width, interval.mean + interval.half_width]
    lines: Any = LineFigure("size", "accuracy")(rows)
    (band,) = lines.axes[0].patches
    assert [band.get_y(), band.get_y() + band.get_height()] == pytest.approx(wanted)
    assert level_lines(lines.axes[0]) == [94.0]
    dots: Any = DotFigure(("accuracy",))(rows)
    bands = [held for held in dots.axes[0].collections if not hasattr(held, "get_segments")]
    (corners,) = [path.vertices[:, 0] for path in bands[0].get_paths()]
    assert [corners.min(), corners.max()] == pytest.approx(wanted)


# Curve figure.


def test_every_seed_is_a_thin_line_and_their_mean_a_thick_one(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"setting": "one", "losses": [4.0, 2.0], "published": 1.5},
        {"setting": "one", "losses": [2.0, 1.0], "published": 1.5},
        {"setting": "other", "losses": [3.0, 0.0]},
        {"setting": "baseline-b", "baseline": "b", "loss": 2.0},
    ]
    draw = CurveFigure(
        ("losses",),
        ("epoch", "loss (nats)"),
        is_logarithmic=True,
        level="loss",
        published="published",
    )
    figure = drawn(draw, rows, tmp_path)
    (axes,) = figure.axes
    lines = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() != "x"]
    assert lines[:3] == [
        [[1.0, 4.0], [2.0, 2.0]],
        [[1.0, 2.0], [2.0, 1.0]],
        [[1.0, 3.0], [2.0, 1.5]],
    ]
    assert lines[3] == [[1.0, 3.0]]  # zero has no place on a logarithmic axis
    assert level_lines(axes) == [2.0]
    assert {"one", "other", "b"} == set(names(axes))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "loss (nats)")
    assert above(figure) == ["published", "one seed"]
    require_apart(axes)


# Figures of experiments.


def test_every_experiment_has_a_figure() -> None:
    assert not [name for name in EXPERIMENTS if find_experiment(name).figure is None]


COMMITTED = sorted(path.parent.name for path in RESULTS.glob("*/figure.svg"))


def values_drawn(figure: Any, *, is_level: bool) -> set[float]:
    values = [
        value
        for axes in figure.axes
        for line in axes.lines
        for value in (line.get_xdata() if is_level else line.get_ydata())
    ]
    return {round(float(value), 9) for value in values}


def values_of(row: Row, columns: tuple[str, ...]) -> list[float]:
    return [float(value) for column in columns if isinstance(value := row.get(column), int | float)]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMITTED)
def test_committed_figures_show_every_value_and_no_name_over_another(
    name: str, tmp_path: Path
) -> None:
    experiment = find_experiment(name)
    rows = read_outcome(RESULTS / name, experiment).rows
    draw = experiment.figure
    figure = drawn(draw, rows, tmp_path)
    for axes in figure.axes:
        require_apart(axes)
    if not isinstance(draw, LineFigure | DotFigure):
        return
    shown = values_drawn(figure, is_level=isinstance(draw, DotFigure))
    columns = draw.columns if isinstance(draw, DotFigure) else (draw.up,)
    levels = [panel.levels for panel in draw.panels if panel.levels]
    for row in rows:
        # Of these, the mean over seeds is a line.
        is_level = any(re.fullmatch(level, str(row["setting"])) for level in levels)
        if is_level or row.get("baseline") is not None:
            continue
        for value in values_of(row, columns):
            is_number = isinstance(draw, LineFigure) and draw.top is not None and value > draw.top
            assert round(value, 9) in shown or is_number, f"{row['setting']}: {value}"


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMITTED)
def test_figures_are_laid_out_of_the_first_row_and_of_half_of_them(name: str) -> None:
    experiment = find_experiment(name)
    draw: Any = experiment.figure
    rows = read_outcome(RESULTS / name, experiment).rows
    for some in (rows[:1], rows[: len(rows) // 2]):
        figure = draw(some)
        figure.draw_without_rendering()
        assert figure.axes


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_figures_use_the_colours_of_the_project(name: str) -> None:
    text = (RESULTS / name / "figure.svg").read_text(encoding="utf-8").upper()
    assert any(one.upper() in text for one in COLOURS)
    for default in ("#1F77B4", "#FF7F0E", "#2CA02C", "#D62728"):  # of matplotlib
        assert default not in text


@pytest.mark.parametrize(
    ("places", "labels"),
    [
        ([2, 4, 8, 64], ["2", "4", "8", "64"]),  # where the points are
        ([2, 2.01, 64], None),  # too near to each other
        (range(1, 20), None),  # too many
        ([9_771, 19_851, 50_409], None),  # too long
    ],
)
def test_ticks_stand_where_few_points_are(places: list[float], labels: list[str] | None) -> None:
    rows: list[Row] = [{"size": place, "loss": 1.0 + place, "kind": "a"} for place in places]
    figure: Any = LineFigure("size", "loss", "kind")(rows)
    written = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert written == labels if labels else len(written) != len(places)


def test_names_at_the_edge_are_muted() -> None:
    rows: list[Row] = [
        {"size": 1, "loss": 1.0, "kind": "a"},
        {"size": 2, "loss": 1.1, "kind": "a"},
        {"baseline": "far", "loss": 9.0},
    ]
    figure: Any = LineFigure("size", "loss", "kind")(rows)
    (note,) = [text for text in figure.axes[0].texts if "far" in text.get_text()]
    assert note.get_text() == "↑ far: 9"
    assert note.get_color() == MUTED


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
    assert figure.legends == []
    assert set(names(axes)) == {"ours", "RKO"}


# Lipschitz figure.


def row(network: str, clean: float) -> Row:
    return {
        "setting": network,
        "clean": clean,
        "radii": [0.1, 0.2],
        "attacked": [clean - 10, clean - 20],
        "certified": [clean - 15, clean - 35],
    }


def test_each_network_has_a_panel_and_begins_with_its_clean_accuracy() -> None:
    rows = [row("usual", 80.0), row("usual", 82.0), row("a", 70.0), row("b", 70.0)]
    figure: Any = LIPSCHITZ_FIGURE(rows)
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["Usual network", "A", "B"]
    lines = [line.get_xydata().tolist() for line in figure.axes[0].get_lines()]
    assert lines[:3] == [
        [[0.0, 80.0], [0.1, 65.0], [0.2, 45.0]],
        [[0.0, 82.0], [0.1, 67.0], [0.2, 47.0]],
        [[0.0, 81.0], [0.1, 66.0], [0.2, 46.0]],
    ]
    assert above(figure) == ["certified", "after the attack", "one seed"]
