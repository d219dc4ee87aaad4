"""Networks of norm-preserving parts: nothing is stretched, from images to logits."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.robust import (
    BetaAbs,
    BlockReflector,
    InputScaling,
    LipConvNet,
    LipschitzNetwork,
    NormalizedLinear,
    OrthogonalLinear,
    ResNet9,
    WideResNet,
    lipschitz_bound,
)

IMAGE = (2, 16, 32)
MAKERS: dict[str, Callable[[], LipschitzNetwork]] = {
    "ResNet9": lambda: ResNet9(IMAGE, width=2, num_classes=3),
    "scaled ResNet9": lambda: ResNet9(
        IMAGE, width=2, last_layer=NormalizedLinear, scaling=InputScaling((0.5, 0.4), (0.25, 0.5))
    ),
    "ResNet9 of newer parts": lambda: ResNet9(
        IMAGE, width=2, num_classes=3, activation=BetaAbs, parametrization=BlockReflector()
    ),
    "WideResNet": lambda: WideResNet(10, 1, image=IMAGE, num_classes=5),
    "LipConvNet": lambda: LipConvNet(8, width=2, num_blocks=4, image=IMAGE),
    "orthogonal LipConvNet": lambda: LipConvNet(
        3, width=2, num_blocks=3, image=IMAGE, last_layer=OrthogonalLinear
    ),
}
CONSTANT_ONE = ["ResNet9", "ResNet9 of newer parts", "WideResNet", "orthogonal LipConvNet"]


def moved(name: str, seed: int) -> LipschitzNetwork:
    """In float64, away from where it started."""
    model = MAKERS[name]().double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


@pytest.mark.parametrize("name", MAKERS)
@settings(deadline=None, max_examples=4)
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1e-4, 1.0]))
def test_logits_never_come_apart_faster_than_the_constant_says(
    name: str, seed: int, scale: float
) -> None:
    model = moved(name, seed)
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(1, *IMAGE, dtype=torch.float64, generator=generator)
    step = scale * torch.randn(1, *IMAGE, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        change = model(images + step) - model(images)
    assert change.norm() <= model.lipschitz_constant * step.norm() * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_the_constant_of_the_construction_is_what_walking_the_graph_finds(name: str) -> None:
    model = moved(name, 0)
    found = lipschitz_bound(model, IMAGE).value
    # The weights are measured as they are built here, in float32.
    assert found == pytest.approx(model.lipschitz_constant, rel=1e-4)
    assert found >= model.lipschitz_constant * (1 - 1e-6)


@pytest.mark.parametrize("name", MAKERS)
def test_no_gradient_of_all_logits_is_longer_than_the_constant(name: str) -> None:
    model = moved(name, 0).requires_grad_(requires_grad=False)
    images = torch.rand(1, *IMAGE, dtype=torch.float64)
    jacobian = torch.func.jacrev(model)(images).reshape(-1, images.numel())
    assert torch.linalg.matrix_norm(jacobian, 2) <= model.lipschitz_constant * (1 + 1e-9)


def test_chains_without_skips_keep_the_norms_of_gradients() -> None:
    model = moved("orthogonal LipConvNet", 0).requires_grad_(requires_grad=False)
    images = torch.rand(1, *IMAGE, dtype=torch.float64)
    logits, pull_back = torch.func.vjp(model, images)[:2]
    upstream = torch.randn_like(logits)
    (gradient,) = pull_back(upstream)
    torch.testing.assert_close(gradient.norm(), upstream.norm())


@pytest.mark.parametrize("name", CONSTANT_ONE)
def test_the_constant_is_one_by_construction(name: str) -> None:
    assert MAKERS[name]().lipschitz_constant == 1.0


def test_scaling_and_a_normalized_last_layer_count() -> None:
    model = MAKERS["scaled ResNet9"]()
    assert isinstance(model.last, NormalizedLinear)
    assert model.lipschitz_constant == 4 * model.last.lipschitz_constant
