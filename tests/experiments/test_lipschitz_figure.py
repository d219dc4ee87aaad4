from rankscope.experiments.experiment import Row
from rankscope.experiments.lipschitz import draw_accuracies


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
