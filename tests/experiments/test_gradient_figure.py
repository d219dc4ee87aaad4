from rankscope.experiments.orthogonality import draw_gradients


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
