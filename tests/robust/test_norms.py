import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.robust import L2, Ball, Linf, Norm

NORMS = [L2(), Linf()]


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(deadline=None)
@given(seed=st.integers(0, 2**16), norm=st.sampled_from(NORMS), radius=st.floats(1e-6, 10))
def test_projections_and_random_points_stay_inside(seed: int, norm: Norm, radius: float) -> None:
    changes = draw(seed, 5, 2, 3).float()
    generator = torch.Generator().manual_seed(seed)
    for found in (norm.projected(changes, radius), norm.random(changes, radius, generator)):
        assert float(norm.lengths(found.double()).max()) <= radius
    small = changes * (0.5 * radius / norm.lengths(changes).max())
    assert torch.allclose(norm.projected(small, radius), small)


@settings(deadline=None)
@given(seed=st.integers(0, 2**16), norm=st.sampled_from(NORMS))
def test_the_steepest_change_attains_the_dual_norm(seed: int, norm: Norm) -> None:
    gradients = draw(seed, 4, 2, 3)
    best = norm.steepest(gradients)
    torch.testing.assert_close(norm.lengths(best), torch.ones(4, dtype=torch.float64))
    attained = (gradients * best).flatten(1).sum(dim=1)
    torch.testing.assert_close(attained, norm.dual_lengths(gradients, axes=2))
    other = draw(seed + 1, 4, 2, 3)
    other = other / norm.lengths(other)[:, None, None]
    assert ((gradients * other).flatten(1).sum(dim=1) <= attained + 1e-12).all()
    assert (other.flatten(1).norm(dim=1) <= norm.euclidean(6) + 1e-12).all()


def test_a_gradient_of_zero_goes_nowhere() -> None:
    assert not L2().steepest(torch.zeros(2, 3)).any()
    assert (L2().name, Linf().name) == ("l2", "linf")
    assert Linf().euclidean(9) == 3.0


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**16),
    norm=st.sampled_from(NORMS),
    pixels=st.sampled_from([None, (0.0, 1.0)]),
)
def test_no_point_of_a_ball_is_below_its_smallest_product(
    seed: int, norm: Norm, pixels: tuple[float, float] | None
) -> None:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(3, 2, 2, generator=generator, dtype=torch.float64)
    ball = Ball(centres, 0.3, norm, pixels)
    weights = draw(seed, 3, 5, 2, 2)
    smallest = ball.smallest(weights)
    for _ in range(20):
        points = centres + norm.random(centres, 0.3, generator)
        points = points if pixels is None else points.clamp(*pixels)
        lower, upper = ball.box().ends
        assert ((lower <= points) & (points <= upper)).all()
        products = (weights * points[:, None]).flatten(2).sum(dim=2)
        assert (products >= smallest - 1e-12).all()


def test_without_limits_the_smallest_product_is_attained() -> None:
    centres, weights = draw(0, 2, 3), draw(1, 2, 1, 3)
    for norm in NORMS:
        worst = centres - 0.5 * norm.steepest(weights[:, 0])
        found = Ball(centres, 0.5, norm).smallest(weights)[:, 0]
        torch.testing.assert_close(found, (weights[:, 0] * worst).sum(dim=1))
    assert math.isclose(
        float(Ball(centres[:1] * 0, 1.0, Linf(), (0.0, 1.0)).box().lower.min()), 0.0
    )


def test_pixels_make_a_euclidean_ball_smaller() -> None:
    centre, weights = torch.zeros(1, 2).double(), torch.ones(1, 1, 2).double()
    assert float(Ball(centre, 1.0, L2(), (0.0, 1.0)).smallest(weights)) == pytest.approx(0.0)
    assert float(Ball(centre, 1.0, L2()).smallest(weights)) == pytest.approx(-math.sqrt(2))
