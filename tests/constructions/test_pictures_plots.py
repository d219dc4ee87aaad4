from pathlib import Path

import numpy
import pytest

from rankscope.constructions.pictures import Axes, draw_curves, draw_matrices
from rankscope.errors import OutputError

WORDS = Axes("A title", "steps", "loss", is_log_across=True, is_log_up=True)


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


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"got 'a\.gif'"):
        draw_curves({"a": ([0.0], [0.0])}, WORDS, tmp_path / "a.gif")
    with pytest.raises(OutputError, match=r"got 'a\.gif'"):
        draw_matrices({"a": numpy.eye(2)}, tmp_path / "a.gif")
