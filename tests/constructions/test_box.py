import numpy
import pytest

from rankscope.constructions.dense import Box, DenseLayer
from rankscope.errors import ConstructionError


def test_cell_centres_are_those_of_all_cells_once() -> None:
    box = Box.of([0.0, -1.0], [1.0, 1.0])
    chunks = list(box.cell_centres((3, 4), chunk=5))
    assert [len(chunk) for chunk in chunks] == [5, 5, 2]
    centres = numpy.concatenate(chunks)
    expected = [((i + 0.5) / 3, -1 + (j + 0.5) / 2) for i in range(3) for j in range(4)]
    numpy.testing.assert_allclose(centres, expected)


def test_the_lowest_value_of_an_affine_map_is_at_a_corner() -> None:
    box = Box.of([0.0, -1.0, 2.0], [1.0, 1.0, 5.0])
    draw = numpy.random.default_rng(0)
    layer = DenseLayer(draw.standard_normal((4, 3)), draw.standard_normal(4))
    numpy.testing.assert_allclose(box.lowest(layer), layer(box.points(2)).min(axis=0))


def test_a_diagonal_goes_from_corner_to_corner() -> None:
    assert Box.of([0.0, 2.0], [1.0, 4.0]).diagonal(3).tolist() == [[0, 2], [0.5, 3], [1, 4]]


def test_boxes_that_do_not_go_upwards_are_refused() -> None:
    with pytest.raises(ConstructionError, match=r"coordinate 1 goes from 2.0 to 2.0"):
        Box.of([0.0, 2.0], [1.0, 2.0])
    with pytest.raises(ConstructionError, match=r"got shapes \(2,\) and \(3,\)"):
        Box.of([0.0, 2.0], [1.0, 3.0, 4.0])
    with pytest.raises(ConstructionError, match=r"high must be finite, got inf"):
        Box.of([0.0], [numpy.inf])
