import re
from pathlib import Path
from typing import Any

import numpy
import pytest
from torch import nn

from rankscope.errors import ConstructionError, OutputError
from rankscope.lab.constructions import (
    Adam,
    Axes,
    Box,
    DeadUnits,
    GradientDescent,
    IntervalFunction,
    LayerUnits,
    PiecewiseLinear,
    approximate_on_interval,
    dense_layers,
    draw_activations,
    draw_approximation,
    draw_barrier,
    draw_binary_distances,
    draw_curves,
    draw_dead_units,
    draw_descent,
    draw_hidden_units,
    draw_matrices,
    draw_realizations,
    draw_regions,
    draw_sawtooth,
    draw_shared_matrices,
    draw_two_five_one,
    draw_ways,
    exp,
    find_obstruction,
    follow,
    gradient_descent,
    least_squares,
    maximum_of_three,
    polynomial_barrier,
    regions_in_plane,
    save_figure,
    shared_convolution,
    two_five_one,
)
from rankscope.lab.constructions.pictures import (
    FIRST,
    FIRST_TINT,
    SECOND,
    SEVERAL,
    STYLES,
    shared_colours,
)

# Figures.


def line(figure: Any) -> None:
    assert figure.get_size_inches().tolist() == [2.0, 3.0]
    figure.add_subplot().plot([0, 1], [0, 1])


def test_a_figure_of_the_size_asked_for_is_filled_and_written(tmp_path: Path) -> None:
    assert save_figure(tmp_path / "a.svg", line, size=(2.0, 3.0)).read_bytes().startswith(b"<?xml")


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"a construction writes .svg, .pdf, .png, got 'a.gif'"):
        save_figure(tmp_path / "a.gif", line, size=(2.0, 3.0))


# Pictures plots.


WORDS = Axes("A title", "steps", "loss", is_log_across=True, is_log_up=True)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".svg", ".png", ".pdf"])
def test_curves_and_matrices_are_drawn_the_same_each_time(tmp_path: Path, ending: str) -> None:
    curves = {str(count): ([1.0, 2.0], [1.0, float(count + 1)]) for count in range(7)}
    matrices = {"small": numpy.eye(3), "large": numpy.arange(100.0).reshape(10, 10)}
    path = tmp_path / f"picture{ending}"
    seen = []
    for _ in range(2):
        plot = draw_curves(curves, WORDS, path, has_points=True).read_bytes()
        maps = draw_matrices(matrices, path, across="keys", up="queries").read_bytes()
        seen.append((plot, maps))
    assert seen[0] == seen[1]
    assert min(map(len, seen[0])) > 1000


def test_another_ending_of_a_plot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"got 'a\.gif'"):
        draw_curves({"a": ([0.0], [0.0])}, WORDS, tmp_path / "a.gif")
    with pytest.raises(OutputError, match=r"got 'a\.gif'"):
        draw_matrices({"a": numpy.eye(2)}, tmp_path / "a.gif")


# Pictures activations.


def test_each_activation_is_drawn_twice_and_named(tmp_path: Path) -> None:
    text = draw_activations(tmp_path / "activations.svg").read_text("utf-8")
    for colour, _ in STYLES[1:4]:
        # Value, slope and the line in the legend.
        assert text.count(f"stroke: {colour.lower()}; stroke-width: 1.5") == 3


def test_dead_units_are_marked_and_only_they(tmp_path: Path) -> None:
    result = DeadUnits((LayerUnits("first", (0.0, 0.5, 0.0)), LayerUnits("second", (1.0,))), 9)
    text = draw_dead_units(result, tmp_path / "dead.svg").read_text("utf-8")
    marks = [
        line for line in text.splitlines() if "<use" in line and f"fill: {SECOND.lower()}" in line
    ]
    assert len(marks) == 2


# Pictures sharing.


def test_one_colour_is_one_weight_and_white_is_zero() -> None:
    layer = nn.Conv2d(2, 2, 3, padding=1)
    matrix = shared_convolution(layer, (2, 3, 4))
    colours = shared_colours(matrix)
    seen = set()
    for source in range(layer.weight.numel()):
        rows, columns = matrix.places(source).T
        results = {tuple(colour) for colour in colours[rows, columns].tolist()}
        assert len(results) == 1
        seen |= results
    assert len(seen) == layer.weight.numel()
    assert int((colours != 1).any(axis=2).sum()) == matrix.num_entries


def test_places_where_weights_add_up_are_grey() -> None:
    matrix = shared_convolution(nn.Conv1d(1, 1, 3, padding=1, padding_mode="replicate"), (1, 4))
    grey = (shared_colours(matrix) == numpy.array(SEVERAL)).all(axis=2)
    assert numpy.argwhere(grey).tolist() == [[0, 0], [3, 3]]


def test_each_matrix_gets_a_panel(tmp_path: Path) -> None:
    matrix = shared_convolution(nn.Conv1d(1, 1, 3), (1, 6))
    path = draw_shared_matrices({"one": matrix, "two": matrix}, tmp_path / "shared.svg")
    assert path.read_text("utf-8").count('id="QuadMesh_') == 2


def test_nothing_and_too_much_are_refused() -> None:
    with pytest.raises(ConstructionError, match="of 1 to 400, got 0 with a largest side of 0"):
        draw_shared_matrices({}, "none.svg")
    matrix = shared_convolution(nn.Conv1d(1, 1, 3), (1, 401))
    with pytest.raises(ConstructionError, match="got 1 with a largest side of 401"):
        draw_shared_matrices({"long": matrix}, "long.svg")


# Pictures distances.


@pytest.mark.parametrize("probabilities", [(0.5,), (0.0, 0.25, 1.0)])
def test_there_is_a_panel_for_each_probability(
    tmp_path: Path, probabilities: tuple[float, ...]
) -> None:
    path = draw_binary_distances(tmp_path / "distances.svg", probabilities=probabilities)
    # Two divergences in each panel, and both in the legend.
    lines = path.read_text("utf-8").count(f"stroke: {SECOND.lower()}")
    assert lines == 2 * len(probabilities) + 2


@pytest.mark.parametrize("probabilities", [(), (0.5, 1.5)])
def test_what_is_no_probability_is_refused(probabilities: tuple[float, ...]) -> None:
    with pytest.raises(ConstructionError, match=r"between 0 and 1, got \[(\]|0.5, 1.5)"):
        draw_binary_distances("none.svg", probabilities=probabilities)


# Pictures descent.


PROBLEM = least_squares(numpy.diag([0.5, 1.0]), numpy.zeros(2))
START = numpy.array([3.0, 1.0])


def test_a_run_is_drawn_with_its_bound_where_it_has_one(tmp_path: Path) -> None:
    fast, slow = (
        gradient_descent(PROBLEM, START, rate=share / PROBLEM.smoothness, num_steps=20)
        for share in (2.5, 1.0)
    )
    text = draw_descent({"fast": fast, "slow": slow}, tmp_path / "descent.svg").read_text("utf-8")
    # Gap, legend, and for the second the bound.
    assert text.count(f"stroke: {FIRST.lower()}") == 2
    assert text.count(f"stroke: {SECOND.lower()}") == 3
    assert text.count(f"stroke: {SECOND.lower()}; stroke-width: 1.5") == 2
    assert text.count("stroke-dasharray") >= 2


def test_ways_have_a_dot_for_each_point(tmp_path: Path) -> None:
    ways = {
        "plain": follow(GradientDescent(1.0), PROBLEM.gradient, START, num_steps=7),
        "Adam": follow(Adam(0.3), PROBLEM.gradient, START, num_steps=5),
    }
    text = draw_ways(PROBLEM, ways, tmp_path / "ways.svg").read_text("utf-8")
    dots = [line for line in text.splitlines() if "<use" in line]
    # The points, and a dot in the legend.
    assert sum(f"fill: {FIRST.lower()}" in line for line in dots) == 8 + 1
    assert sum(f"fill: {SECOND.lower()}" in line for line in dots) == 6 + 1


def test_too_few_and_too_many_curves_are_refused() -> None:
    run = gradient_descent(PROBLEM, START, rate=0.1, num_steps=1)
    with pytest.raises(ConstructionError, match="draw_descent draws 1 to 4 curves, got 5"):
        draw_descent(dict.fromkeys("abcde", run), "many.svg")
    with pytest.raises(ConstructionError, match="draw_ways draws 1 to 4 curves, got 0"):
        draw_ways(PROBLEM, {}, "none.svg")


def test_points_outside_the_plane_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"of 2 parameters, got shapes \[\(2,\), \(3,\)\]"):
        draw_ways(PROBLEM, {"three": numpy.ones((4, 3))}, "three.svg")


# Pictures line.


EXPONENTIAL = IntervalFunction(exp)


def num_lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count('id="line2d_')


@pytest.mark.slow
def test_every_hidden_unit_is_drawn(tmp_path: Path) -> None:
    short = PiecewiseLinear.of([0.0], [-1.0, 1.0])
    long = PiecewiseLinear.of([0.0, 1.0, 2.0], [-1.0, 1.0, 0.0, 3.0])
    affine = PiecewiseLinear.of([], [2.0])
    counts = [
        num_lines(draw_hidden_units(function, tmp_path / "a.svg")) for function in (short, long)
    ]
    assert counts[1] > counts[0]
    assert draw_hidden_units(affine, tmp_path / "b.svg").stat().st_size > 0


def test_an_approximation_shows_two_panels(tmp_path: Path) -> None:
    result = approximate_on_interval(EXPONENTIAL, 0.0, 1.0, epsilon=0.1)
    text = draw_approximation(result, EXPONENTIAL, tmp_path / "a.svg").read_text(encoding="utf-8")
    assert 'id="axes_2"' in text


def test_each_rival_of_the_sawtooth_is_a_line(tmp_path: Path) -> None:
    flat = PiecewiseLinear.of([], [0.0], value=0.5)
    alone = num_lines(draw_sawtooth(3, {}, tmp_path / "a.svg"))
    accompanied = num_lines(draw_sawtooth(3, {"flat": flat, "flatter": flat}, tmp_path / "b.svg"))
    # One on the axes and one in the legend, each.
    assert accompanied == alone + 4


def test_a_barrier_is_drawn(tmp_path: Path) -> None:
    result = polynomial_barrier(numpy.exp, 0.0, 1.0, degree=2)
    assert draw_barrier(result, EXPONENTIAL, (0.0, 1.0), tmp_path / "a.png").stat().st_size > 0


# Pictures regions.


SQUARE = Box.of([-1.0, -1.0], [1.0, 1.0])


def test_there_is_a_polygon_for_each_pattern_and_a_colour_for_each_piece(tmp_path: Path) -> None:
    result = regions_in_plane(maximum_of_three(), SQUARE)
    text = draw_regions(result, tmp_path / "regions.svg").read_text(encoding="utf-8")
    group = text[text.index('id="PolyCollection_1"') :]
    paths = re.findall(r'<path d="[^"]*" clip-path[^>]*fill: (#\w+)', group)
    assert len(paths) == result.num_patterns
    assert len(set(paths)) == result.num_affine_pieces


def test_an_obstruction_adds_two_marks(tmp_path: Path) -> None:
    result = regions_in_plane(maximum_of_three(), SQUARE)
    marked = find_obstruction(maximum_of_three(), SQUARE)
    plain = draw_regions(result, tmp_path / "plain.svg", title="the same").read_text("utf-8")
    path = draw_regions(result, tmp_path / "marked.svg", title="the same", obstruction=marked)
    thick = "stroke-width: 3.5"
    assert plain.count(thick) == 0
    assert path.read_text("utf-8").count(thick) == 2


# Pictures two five one.


def test_the_graph_has_eight_nodes_and_a_line_for_each_weight(tmp_path: Path) -> None:
    network = two_five_one(0)
    text = draw_two_five_one(network, tmp_path / "graph.svg").read_text("utf-8")
    assert text.count(f"fill: {str(FIRST_TINT).lower()}") == 8
    weights = [layer.weight for layer in dense_layers(network.network)]
    positive = sum(int((weight > 0).sum()) for weight in weights)
    # And one of each in the legend.
    assert text.count(f"stroke: {FIRST.lower()}") == positive + 1
    assert text.count(f"stroke: {SECOND.lower()}") == 15 - positive + 1


def test_there_is_a_panel_for_each_network_with_its_lines(tmp_path: Path) -> None:
    networks = [two_five_one(seed) for seed in range(5)]
    text = draw_realizations(networks, tmp_path / "real.svg").read_text("utf-8")
    groups = text.split('id="LineCollection_')[1:]
    assert len(groups) == 5
    # Ten regions of two inner sides each.
    assert [group.split("</g>")[0].count("<path") for group in groups] == [20] * 5


def test_no_network_is_refused() -> None:
    with pytest.raises(ConstructionError, match="at least 1 network, got 0"):
        draw_realizations([], "none.svg")
