import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import DecompositionError
from rankscope.layers.formats.spectra import tails


@settings(deadline=None, max_examples=20)
@given(rows=st.integers(1, 8), columns=st.integers(1, 8), seed=st.integers(0, 99))
def test_each_tail_is_the_distance_to_the_nearest_matrix_of_that_rank(
    rows: int, columns: int, seed: int
) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).double()
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    found = tails(1e-30 * matrix)
    assert len(found) == min(rows, columns) + 1
    for rank, tail in enumerate(found):
        nearest = (left[:, :rank] * values[:rank]) @ right[:rank]
        assert float(tail) == pytest.approx(float((matrix - nearest).norm() / matrix.norm()))


def test_zeros_have_no_tail() -> None:
    assert not tails(torch.zeros(3, 2)).any()


def test_entries_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DecompositionError, match="1 of 4 entries are not finite"):
        tails(torch.tensor([[1.0, 2.0], [math.nan, 3.0]]))
