from pathlib import Path

import pytest

from rankscope.constructions.pictures import SECOND, draw_binary_distances
from rankscope.errors import ConstructionError


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
