from pathlib import Path

import numpy
import pytest
from torch import nn

from rankscope.constructions.pictures import SEVERAL, draw_shared_matrices, shared_colours
from rankscope.constructions.weight_sharing import shared_convolution
from rankscope.errors import ConstructionError


def test_one_colour_is_one_weight_and_white_is_zero() -> None:
    layer = nn.Conv2d(2, 2, 3, padding=1)
    matrix = shared_convolution(layer, (2, 3, 4))
    colours = shared_colours(matrix)
    seen = set()
    for source in range(layer.weight.numel()):
        rows, columns = matrix.places(source).T
        found = {tuple(colour) for colour in colours[rows, columns].tolist()}
        assert len(found) == 1
        seen |= found
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
