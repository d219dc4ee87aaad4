import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.robust import Cayley, Householder, MatrixExponential, Parametrization

ALL = [Cayley(), MatrixExponential(), Householder()]


@pytest.mark.parametrize("chosen", ALL)
@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(0, 5), st.integers(0, 5), st.integers(0, 99))
def test_columns_are_orthonormal_wherever_one_stands(
    chosen: Parametrization, size: int, rest: int, columns: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    square = 3 * torch.randn(2, size, size, generator=generator, dtype=torch.float64)
    free = 3 * torch.randn(2, rest, columns, generator=generator, dtype=torch.float64)
    for matrix in (chosen.rotation(square), chosen.frame(free)):
        identity = torch.eye(matrix.shape[-1], dtype=torch.float64).expand(2, -1, -1)
        torch.testing.assert_close(matrix.mT @ matrix, identity, rtol=0, atol=1e-10)


@pytest.mark.parametrize("chosen", ALL)
def test_zero_goes_to_the_identity_and_the_frame_starts_along_its_free_numbers(
    chosen: Parametrization,
) -> None:
    zero = torch.zeros(5, 5, dtype=torch.float64)
    torch.testing.assert_close(chosen.rotation(zero), torch.eye(5, dtype=torch.float64))
    free = torch.randn(3, 2, dtype=torch.float64)
    first_order = torch.func.jvp(chosen.frame, (torch.zeros_like(free),), (free,))[1]
    # Of a reflection the identity part moves only to second order, as of the others.
    torch.testing.assert_close(first_order[:2], torch.zeros(2, 2, dtype=torch.float64))
    ratio = first_order[2:] / free
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))
    assert ratio[0, 0] != 0


def test_the_short_form_of_a_cayley_frame_is_the_transform_of_the_whole_matrix() -> None:
    free = torch.randn(4, 3, dtype=torch.float64)
    whole = torch.zeros(7, 7, dtype=torch.float64)
    whole[3:, :3] = free
    torch.testing.assert_close(Cayley().frame(free), Cayley().rotation(whole)[:, :3])
