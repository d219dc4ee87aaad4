import numpy
import pytest

from rankscope.rank import eliminate, panel_width, to_residues


def test_the_echelon_form_has_the_row_space_of_the_matrix() -> None:
    """Rows beyond the rank are cleared, and the pivot rows are the named rows of the matrix."""
    draw, prime = numpy.random.default_rng(0), 10007
    matrix = draw.integers(0, prime, (300, 140)) @ draw.integers(0, 50, (140, 400)) % prime
    echelon = eliminate(to_residues(matrix, prime, who="test"), prime)
    assert echelon.matrix_rank == 140
    assert sorted(echelon.row_order.tolist()) == list(range(300))
    assert not echelon.residues[140:, 2 * panel_width(prime) :].any()
    rows = matrix[list(echelon.pivot_rows)]
    assert eliminate(to_residues(rows, prime, who="test"), prime).matrix_rank == 140


def test_every_panel_inverts_the_block_it_names() -> None:
    draw, prime = numpy.random.default_rng(1), 16777213
    matrix = draw.integers(0, prime, (260, 260))
    echelon = eliminate(to_residues(matrix, prime, who="test"), prime)
    assert len(echelon.panels) == 3
    for panel in echelon.panels:
        rows = slice(panel.first_row, panel.first_row + len(panel.columns))
        block = echelon.residues[rows][:, panel.columns].astype(numpy.int64).astype(object)
        product = block @ panel.inverse.astype(numpy.int64).astype(object) % prime
        assert product.tolist() == numpy.eye(len(panel.columns), dtype=int).tolist()


@pytest.mark.parametrize("num_columns", [0, 1, 130, 200])
def test_pivots_are_looked_for_in_the_first_columns_only(num_columns: int) -> None:
    draw, prime = numpy.random.default_rng(2), 10007
    matrix = draw.integers(0, prime, (210, 250))
    echelon = eliminate(to_residues(matrix, prime, who="test"), prime, num_columns=num_columns)
    assert echelon.pivot_columns == tuple(range(num_columns))
