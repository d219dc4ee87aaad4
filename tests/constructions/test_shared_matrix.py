import numpy
import pytest

from rankscope.constructions.weight_sharing import SharedMatrix


@pytest.fixture
def matrix() -> SharedMatrix:
    """(w1, 0, 2 w3) and (0, 0, w3 - w1), with a term of coefficient zero."""
    return SharedMatrix(
        (2, 3),
        numpy.array([9.0, 5.0, 9.0, 7.0]),
        numpy.array([0, 0, 1, 1, 1]),
        numpy.array([0, 2, 2, 2, 0]),
        numpy.array([1, 3, 3, 1, 1]),
        numpy.array([1.0, 2.0, 1.0, -1.0, 0.0]),
        numpy.array([100.0, 200.0]),
    )


def test_terms_at_one_place_add_up(matrix: SharedMatrix) -> None:
    assert matrix.to_dense().tolist() == [[5.0, 0.0, 14.0], [0.0, 0.0, 2.0]]
    assert (matrix.to_sparse().toarray() == matrix.to_dense()).all()


def test_it_is_an_affine_map_of_rows(matrix: SharedMatrix) -> None:
    outputs = matrix(numpy.array([[1.0, 1.0, 1.0], [0.0, 0.0, -1.0]]))
    assert outputs.tolist() == [[119.0, 202.0], [86.0, 198.0]]


def test_it_counts_entries_and_weights(matrix: SharedMatrix) -> None:
    assert (matrix.num_entries, matrix.num_weights) == (3, 2)
    assert str(matrix) == "2 x 3 matrix, 3 of 6 entries, 2 different weights"


def test_it_says_where_a_weight_stands(matrix: SharedMatrix) -> None:
    assert matrix.places(3).tolist() == [[0, 2], [1, 2]]
    assert matrix.places(0).tolist() == []
