import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.robust import (
    BlockReflector,
    Cayley,
    Householder,
    MatrixExponential,
    OrthogonalConv2d,
    Parametrization,
)

ALL = [Cayley(), BlockReflector(), MatrixExponential(), Householder()]


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


def reflection(basis: torch.Tensor) -> torch.Tensor:
    """I - 2 V (V^T V)^-1 V^T."""
    inverse = torch.linalg.inv(basis.mT @ basis)
    result: torch.Tensor = torch.eye(len(basis), dtype=basis.dtype) - 2 * basis @ inverse @ basis.mT
    return result


@given(st.integers(0, 9), st.integers(0, 99))
def test_a_block_reflector_is_a_reflection_with_the_first_columns_turned(
    size: int, seed: int
) -> None:
    """Lai et al. (2025): symmetric, and half of the coordinates are turned round."""
    half = size // 2
    free = torch.randn(
        size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    rotation = BlockReflector().rotation(free)
    turned = torch.cat([-rotation[:, :half], rotation[:, half:]], dim=1)
    torch.testing.assert_close(turned, turned.mT)
    torch.testing.assert_close(turned @ turned, torch.eye(size, dtype=torch.float64))
    assert round(float(turned.trace())) == size - 2 * half
    basis = torch.cat([torch.eye(half, dtype=torch.float64), free[half:, :half] / 2])
    torch.testing.assert_close(turned, reflection(basis))


@given(st.integers(0, 9), st.integers(0, 99))
def test_block_reflectors_are_the_cayley_transforms_that_join_two_halves_only(
    size: int, seed: int
) -> None:
    half = size // 2
    free = torch.randn(
        size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    joining = torch.zeros_like(free)
    joining[half:, :half] = free[half:, :half]
    torch.testing.assert_close(BlockReflector().rotation(free), Cayley().rotation(joining))


def test_the_frames_of_cayley_are_columns_of_a_block_reflector() -> None:
    free = torch.randn(4, 3, dtype=torch.float64)
    basis = torch.cat([torch.eye(3, dtype=torch.float64), free / 2])
    torch.testing.assert_close(Cayley().frame(free), -reflection(basis)[:, :3])


def test_channels_that_are_shifted_by_a_pixel_are_a_factor_with_a_fixed_frame() -> None:
    """Hu et al. (2026) shift channels between 1 x 1 convolutions: a kernel that ours can have."""
    layer = OrthogonalConv2d(4, 4, (1, 2), bias=False).double().eval()
    (system,) = layer.kernel.systems
    identity = torch.eye(4, dtype=torch.float64)
    system.get_buffer("rotation_start").copy_(identity[None])
    system.get_buffer("frame_starts").copy_(identity[None, None])
    images = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    shifted = torch.cat([images[:, :2], images[:, 2:].roll(-1, dims=3)], dim=1)
    moved = layer(images)
    assert any(torch.allclose(moved, shifted.roll(shift, dims=3)) for shift in range(-1, 2))
