from pathlib import Path

import pytest

from rankscope.constructions.dense import dense_layers
from rankscope.constructions.explicit_networks import two_five_one
from rankscope.constructions.pictures import FIRST, FIRST_TINT, SECOND
from rankscope.constructions.pictures_functions import draw_realizations, draw_two_five_one
from rankscope.errors import ConstructionError


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
