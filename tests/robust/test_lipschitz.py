"""Lipschitz bounds: never below what pairs of points show, exact where theory says so."""

import math
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import RobustnessError, UnsupportedModuleError
from rankscope.factorize import FORMATS, FactorizedLinear
from rankscope.networks import ResNet
from rankscope.robust import (
    BetaAbs,
    ConcatenativeSkip,
    ConvexSkip,
    GroupSort,
    HouseholderActivation,
    InputScaling,
    LipConvNet,
    MaxMin,
    NormalizedLinear,
    NormPreservingPool,
    OrthogonalConv2d,
    OrthogonalConvTranspose2d,
    OrthogonalLinear,
    ResNet9,
    lipschitz_bound,
)


class Calls(nn.Module):
    def __init__(self, function: Any, **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleDict(parts)

    def forward(self, inputs: Tensor) -> Any:
        return self.function(self.parts, inputs)


def steepest(model: nn.Module, shape: tuple[int, ...], *, scale: float = 1.0) -> float:
    """The largest norm of the Jacobian found at random points, large and small."""
    model = model.double().eval()
    generator, found = torch.Generator().manual_seed(1), 0.0
    for size in (0.1, 1.0, 4.0):
        point = size * torch.randn(1, *shape, generator=generator, dtype=torch.float64)
        jacobian = torch.autograd.functional.jacobian(model, point)  # type: ignore[no-untyped-call]
        matrix = jacobian.reshape(-1, point.numel())
        found = max(found, float(torch.linalg.matrix_norm(matrix, 2)))
    return found * scale


def conv_net(padding_mode: Literal["zeros", "circular"]) -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode=padding_mode),
        nn.BatchNorm2d(4),
        nn.LeakyReLU(0.2),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False),
        nn.ConvTranspose2d(4, 2, 2, stride=2),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(128, 5),
        nn.Tanh(),
    )
    generator = torch.Generator().manual_seed(0)
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_var is not None
    norm.running_var.copy_(torch.rand(4, generator=generator) + 0.2)
    norm.weight.data.copy_(torch.randn(4, generator=generator))
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "plain": (lambda: conv_net("zeros"), (2, 8, 8)),
    "circular": (lambda: conv_net("circular"), (2, 8, 8)),
    "residual": (lambda: ResNet(8, width=2), (3, 8, 8)),
    "lipschitz": (lambda: ResNet9(width=2, image=(3, 16, 16)), (3, 16, 16)),
    "factorized": (
        lambda: FactorizedLinear.from_dense(nn.Linear(6, 5), FORMATS["svd"], (2,)),
        (6,),
    ),
    "tokens": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 3), nn.Softmax(dim=-1)),
        (5, 4),
    ),
    "arithmetic": (
        lambda: Calls(
            lambda p, x: 2 * p["a"](x) - (1 - p["b"](x)) / 4 + -x @ torch.ones(4, 4).to(x),
            a=nn.Linear(4, 4),
            b=nn.Linear(4, 4),
        ),
        (4,),
    ),
    "broadcast": (lambda: Calls(lambda _, x: x - x.mean(dim=1, keepdim=True)), (4,)),
    "extremes": (
        lambda: Calls(
            lambda _, x: torch.cat(
                [torch.maximum(x, x.flip(1)), x.amax(dim=1, keepdim=True), x.clamp(-1, 1)], dim=1
            )
        ),
        (4,),
    ),
    "functions": (
        lambda: Calls(
            lambda p, x: functional.conv2d(
                functional.pad(x, (1, 1, 1, 1), mode="reflect"), torch.ones(2, 1, 3, 3).to(x)
            ),
        ),
        (1, 5, 5),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_no_jacobian_is_above_the_bound(name: str) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make()
    model.eval()
    bound = lipschitz_bound(model, shape)
    assert steepest(model, shape) <= bound.value
    assert bound.steps[-1].reach == bound.value


@pytest.mark.parametrize(
    ("model", "shape", "constant"),
    [
        (nn.AvgPool2d(2), (3, 8, 8), 0.5),
        (nn.AvgPool2d(3, stride=1, padding=1), (1, 6, 6), 1.0),
        (nn.AdaptiveAvgPool2d(1), (2, 4, 4), 0.25),
        (nn.MaxPool2d(2), (1, 4, 4), 1.0),
        (nn.MaxPool2d(3, stride=1), (1, 6, 6), 3.0),
        (nn.MaxPool2d(3, stride=2, padding=1), (1, 6, 6), 2.0),
        (nn.MaxPool2d((3, 1), stride=(3, 1), dilation=2), (1, 6, 6), 1.0),
        (nn.MaxPool1d(2, stride=2, dilation=2), (1, 6), math.sqrt(2)),
        (Calls(lambda _, x: x.sum(dim=1)), (9, 2), 3.0),
        (Calls(lambda _, x: x + 2 * x), (3,), 3.0),
        (Calls(lambda _, x: torch.cat([x, torch.zeros_like(x)], dim=1)), (3,), 1.0),
        (Calls(lambda _, x: torch.sub(x, x, alpha=0.5)), (3,), 1.5),
        (Calls(lambda _, x: torch.add(input=x, other=x.flip(1))), (3,), 2.0),
        (Calls(lambda _, x: torch.cat([x, x], dim=1)), (3,), math.sqrt(2)),
        (Calls(lambda _, x: torch.cat([2 * x[:, :1], x[:, 1:]], dim=1)), (3,), 2.0),
        (Calls(lambda _, x: torch.cat([x[:, :2], x[:, 1:]], dim=1)), (3,), math.sqrt(2)),
        (Calls(lambda _, x: 0.25 * x + 0.75 * x.relu()), (3,), 1.0),
        (InputScaling((0.5, 0.5), (0.25, 0.5)), (2, 3, 3), 4.0),
        (MaxMin(), (4, 2, 2), 1.0),
        (GroupSort(4), (4,), 1.0),
        (BetaAbs(), (5, 2), 1.0),
        (HouseholderActivation(4), (4,), 1.0),
        (NormPreservingPool(2), (1, 4, 4), 1.0),
        (nn.Dropout(0.5), (3,), 1.0),
        (nn.PixelShuffle(2), (4, 3, 3), 1.0),
        (Calls(lambda _, x: x.view_as(x + 1)), (4,), 1.0),
        (Calls(lambda _, x: torch.rsub(x, 1, alpha=2)), (4,), 2.0),
    ],
)
def test_constants_are_those_of_theory(
    model: nn.Module, shape: tuple[int, ...], constant: float
) -> None:
    assert lipschitz_bound(model, shape).value == pytest.approx(constant, rel=1e-9)
    assert steepest(model, shape) <= constant * (1 + 1e-9)


@pytest.mark.slow
def test_norm_preserving_networks_have_constant_1() -> None:
    torch.manual_seed(0)
    inner = nn.Sequential(OrthogonalConv2d(2, 2, 3), MaxMin(), OrthogonalConv2d(2, 2, 3))
    halves = nn.Sequential(OrthogonalConv2d(2, 2, 3), MaxMin())
    model = nn.Sequential(
        OrthogonalConv2d(3, 2, 3),
        ConvexSkip(inner),
        OrthogonalConv2d(2, 4, 4, stride=2),
        ConcatenativeSkip(halves),
        OrthogonalConvTranspose2d(4, 2, 2, stride=2),
        nn.Flatten(),
        OrthogonalLinear(128, 10),
    )
    assert lipschitz_bound(model, (3, 8, 8)).value == pytest.approx(1.0, abs=2e-5)
    network = LipConvNet(5, width=2, image=(3, 32, 32))
    measured = lipschitz_bound(network, (3, 32, 32)).value
    assert measured == pytest.approx(network.lipschitz_constant, rel=1e-4)


def test_an_exported_kernel_scaled_by_3_is_measured_as_3() -> None:
    layer = OrthogonalConv2d(2, 2, 3).to_conv2d()
    with torch.no_grad():
        next(layer.parameters()).mul_(3)
    model = nn.Sequential(layer, MaxMin(), OrthogonalConv2d(2, 2, 3))
    bound = lipschitz_bound(model, (2, 6, 6))
    assert bound.value == pytest.approx(3.0, rel=1e-5)
    assert bound.steps[0].constants[0] == pytest.approx(3.0, rel=1e-5)


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(seed=st.integers(0, 2**16), classes=st.integers(2, 5), scale=st.floats(1.5, 8.0))
def test_differences_of_outputs_have_the_constants_of_rows(
    seed: int, classes: int, scale: float
) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), NormalizedLinear(6, classes))
    bound = lipschitz_bound(model, (4,), scale=scale)
    assert bound.pairs is not None
    assert bound.pairs.shape == (classes, classes)
    last = model[2]
    assert isinstance(last, NormalizedLinear)
    weight = last.weight().detach().double()
    features = bound.steps[1].reach
    for one in range(classes):
        for other in range(classes):
            row = float((weight[one] - weight[other]).norm())
            assert float(bound.pairs[one, other]) == pytest.approx(features * row, rel=1e-9)
            assert float(bound.pairs[one, other]) <= math.sqrt(2) * bound.value
    first = model[0]
    assert isinstance(first, nn.Linear)
    largest = float(torch.linalg.matrix_norm(first.weight.detach().double(), 2))
    assert features == pytest.approx(scale * largest, rel=1e-9)
    assert any("multiplied" in text for text in bound.assumptions)


def test_other_last_operations_have_root_2_times_the_constant() -> None:
    bound = lipschitz_bound(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), (3,))
    assert bound.pairs is not None
    assert torch.allclose(bound.pairs, torch.full((3, 3), math.sqrt(2) * bound.value).double())
    assert lipschitz_bound(nn.ReLU(), (3, 3)).pairs is None
    assert str(bound).startswith("Lipschitz constant at most ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (
            Calls(lambda p, x: p["a"](x, x, x)[0], a=nn.MultiheadAttention(4, 2, batch_first=True)),
            (3, 4),
            r"lipschitz_bound: bmm \(in parts\.a\): it multiplies values",
        ),
        (
            nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
            (3, 4),
            r"attention_scores \(in self_attn\): it multiplies",
        ),
        (
            nn.GRU(4, 4, batch_first=True),
            (3, 4),
            r"gru \(.*\): gates and states: it multiplies",
        ),
        (
            Calls(lambda _, x: functional.scaled_dot_product_attention(x, x, x)),
            (3, 4),
            r"attention_scores \(.*\): it multiplies values .* use the method intervals",
        ),
        (nn.GroupNorm(2, 4), (4, 2), "it divides by the deviation"),
        (Calls(lambda p, x: p["a"](x, x), a=nn.Bilinear(4, 4, 2)), (4,), "it multiplies values"),
        (Calls(lambda _, x: x * x), (4,), r"mul \(.*\): both sides depend on the input"),
        (Calls(lambda _, x: 1 / (1 + x.abs())), (4,), "divides by a value that depends"),
        (Calls(lambda _, x: x @ x.mT), (4, 4), "it multiplies values that both depend"),
        (Calls(lambda _, x: functional.linear(x, x)), (4,), "takes samples together"),
        (Calls(lambda _, x: x.clamp(min=x.flip(1))), (4,), "its limits depend on the input"),
        (Calls(lambda _, x: torch.where(x > 0, x, -x)), (4,), "constant is not known here"),
        (nn.BatchNorm2d(3, track_running_stats=False), (3, 4, 4), "it takes samples together"),
        (Calls(lambda _, x: x.exp()), (4,), "its slope grows without bound"),
        (Calls(lambda _, x: x.cumsum(dim=1)), (4,), "constant is not known here"),
        (Calls(lambda _, x: torch.div(x, 2.0, rounding_mode="floor")), (4,), "rounding jumps"),
        (nn.BatchNorm1d(4, track_running_stats=False), (4,), "it takes samples together"),
        (nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), (1, 5, 5), "repeats entries"),
    ],
)
def test_what_is_not_known_is_refused_by_name_with_the_reason(
    model: nn.Module, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises((UnsupportedModuleError, ValueError), match=message):
        lipschitz_bound(model, shape)


def test_numbers_that_are_not_finite_are_refused() -> None:
    model = nn.Linear(2, 2)
    model.weight.data[0, 1] = math.nan
    with pytest.raises(RobustnessError, match="Linear: 1 of 4 numbers in weight are not finite"):
        lipschitz_bound(model, (2,))
    with pytest.raises(RobustnessError, match="the scale must be positive, got 0"):
        lipschitz_bound(nn.Linear(2, 2), (2,), scale=0.0)
