"""Interval and linear bounds: sound on samples, against exact minima, and ordered."""

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import UnsupportedModuleError
from rankscope.networks import ResNet
from rankscope.robust import (
    L2,
    Ball,
    Graph,
    HouseholderActivation,
    Intervals,
    LinearBounds,
    Linf,
    MaxMin,
    Norm,
    OrthogonalConv2d,
    TransferFunction,
    lower_bounds,
    propagate_intervals,
    propagate_linear_bounds,
    read_transfer_functions,
    sample_shape,
    unit_spreads,
)

METHODS: list[Intervals | LinearBounds] = [
    Intervals(),
    LinearBounds(inner_intervals=True),
    LinearBounds(),
]
NORMS = [L2(), Linf()]
Read = tuple[Graph, tuple[TransferFunction, ...]]


class Calls(nn.Module):
    def __init__(self, function: Any, **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleDict(parts)

    def forward(self, inputs: Tensor) -> Any:
        return self.function(self.parts, inputs)


def convolutional() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"),
        nn.LeakyReLU(0.1),
        nn.MaxPool2d(2, padding=1),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_var is not None
    norm.running_var.copy_(torch.rand(3) + 0.3)
    norm.weight.data.copy_(torch.randn(3))
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (
        lambda: nn.Sequential(
            nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)
        ),
        (4,),
    ),
    "convolutional": (convolutional, (1, 6, 6)),
    "residual": (lambda: ResNet(8, width=2, num_classes=3), (3, 4, 4)),
    "orthogonal": (
        lambda: nn.Sequential(OrthogonalConv2d(2, 2, 3), nn.ReLU(), OrthogonalConv2d(2, 4, 2)),
        (2, 4, 4),
    ),
    "function": (
        lambda: Calls(
            lambda p, x: functional.conv1d(
                x[:, None].relu() / 2, torch.tensor([[[1.0, -1.0]], [[2.0, 1.0]]]).to(x)
            ).flatten(1)
        ),
        (4,),
    ),
}


@cache
def network(name: str, seed: int) -> tuple[nn.Module, Read]:
    """A random network of a name, read once."""
    torch.manual_seed(seed)
    make, shape = MODELS[name]
    model = make().double().eval()
    return model, read_transfer_functions(model, shape, precise=True)


def case(name: str, seed: int, norm: Norm, radius: float) -> tuple[nn.Module, Read, Ball]:
    model, read = network(name, seed % 2)
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(3, *MODELS[name][1], generator=generator, dtype=torch.float64)
    return model, read, Ball(centres, radius, norm, (0.0, 1.0))


def bounds(method: Intervals | LinearBounds, read: Read, ball: Ball) -> Tensor:
    """Lower bounds on every output, and on the negative of every output."""
    graph, transfers = read
    shape = sample_shape(graph.output)
    size = torch.Size(shape).numel()
    unit = torch.eye(size, dtype=torch.float64).reshape(1, size, *shape)
    rows = torch.cat([unit, -unit], dim=1).expand(len(ball.centres), *(2 * size, *unit.shape[2:]))
    with torch.no_grad():
        spreads = unit_spreads(graph, transfers, ball.norm)
        return method.bounds(graph, transfers, ball, spreads, rows).floats


def points_of(ball: Ball, seed: int) -> Tensor:
    """Random points of the ball, many of them on its surface."""
    generator = torch.Generator().manual_seed(seed)
    changes = ball.norm.random(ball.centres, ball.radius, generator)
    longest = ball.norm.steepest(changes) * ball.radius
    chosen = torch.rand(len(changes), generator=generator) < 0.5
    picked = torch.where(chosen.view(-1, *[1] * (changes.ndim - 1)), changes, longest)
    return (ball.centres + picked).clamp(0.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=4)
@given(
    seed=st.integers(0, 2**16),
    norm=st.sampled_from(NORMS),
    radius=st.sampled_from([0.01, 0.1, 0.5]),
)
def test_no_point_is_outside_of_any_bound_and_linear_is_never_looser(
    name: str, seed: int, norm: Norm, radius: float
) -> None:
    model, read, ball = case(name, seed, norm, radius)
    intervals, fast, linear = (bounds(method, read, ball) for method in METHODS)
    assert (fast >= intervals - 1e-9).all()
    assert (linear >= intervals - 1e-9).all()
    for number in range(10):
        with torch.no_grad():
            outputs = model(points_of(ball, seed + number)).flatten(1)
        assert (torch.cat([outputs, -outputs], dim=1) >= linear - 1e-9).all()


def exact_minimum(layers: list[nn.Linear], centre: Tensor, radius: float, row: Tensor) -> float:
    """The smallest row · output over a box, one linear program for each pattern of signs."""
    first, second = (
        (layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in layers
    )
    box = [(float(value) - radius, float(value) + radius) for value in centre]
    smallest = float("inf")
    for signs in itertools.product((0.0, 1.0), repeat=len(first[1])):
        pattern = numpy.array(signs)
        objective = row.numpy() @ second[0] @ (pattern[:, None] * first[0])
        constant = row.numpy() @ (second[0] @ (pattern * first[1]) + second[1])
        flips = 1 - 2 * pattern  # W x + b has the signs of the pattern
        found = linprog(
            objective, A_ub=flips[:, None] * first[0], b_ub=-flips * first[1], bounds=box
        )
        if found.status == 0:
            smallest = min(smallest, float(found.fun) + float(constant))
    return smallest


@pytest.mark.parametrize("seed", range(6))
def test_bounds_are_below_the_exact_minimum_of_small_networks(seed: int) -> None:
    torch.manual_seed(seed)
    layers = [nn.Linear(3, 5).double(), nn.Linear(5, 2).double()]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1])
    centre, radius = torch.rand(1, 3, dtype=torch.float64), 0.3
    ball = Ball(centre, radius, Linf())
    row = torch.tensor([1.0, -1.0], dtype=torch.float64)
    exact = exact_minimum(layers, centre[0], radius, row)
    graph, transfers = read_transfer_functions(model, (3,), precise=True)
    with torch.no_grad():
        rows = row.view(1, 1, 2)
        found = [float(m.bounds(graph, transfers, ball, {}, rows).exact) for m in METHODS]
    assert max(found) <= exact + 1e-9
    assert found[0] <= found[2] + 1e-12


def test_bounds_are_exact_where_no_curve_bends() -> None:
    """With all curves on one side the network is affine, and its minimum that of a linear map."""
    torch.manual_seed(0)
    first, last = nn.Linear(3, 4).double(), nn.Linear(4, 2).double()
    with torch.no_grad():
        first.bias.add_(10.0)
    model = nn.Sequential(first, nn.ReLU(), last)
    centre = torch.rand(1, 3, dtype=torch.float64)
    read = read_transfer_functions(model, (3,), precise=True)
    for norm in NORMS:
        found = bounds(LinearBounds(), read, Ball(centre, 0.5, norm))[0, :2]
        weight = (last.weight @ first.weight).detach()
        with torch.no_grad():
            expected = model(centre)[0] - 0.5 * norm.dual_lengths(weight, axes=1)
        torch.testing.assert_close(found, expected)


def test_first_layers_of_a_euclidean_ball_are_exact_with_intervals_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 3), nn.ReLU()).double()
    graph, transfers = read_transfer_functions(model, (1, 4, 4), precise=True)
    spreads = unit_spreads(graph, transfers, L2())
    (spread,) = spreads.values()
    centre = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(model[:3], centre)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(spread, jacobian.reshape(3, 16).norm(dim=1))
    assert unit_spreads(graph, transfers, Linf()) == {}
    boxes = propagate_intervals(graph, transfers, Ball(centre, 2.0, L2()), spreads)
    lower, upper = boxes[graph.nodes[2].output].ends
    torch.testing.assert_close((upper - lower)[0] / 2, 2.0 * spread)


@pytest.mark.slow
def test_a_radius_of_zero_gives_the_outputs_themselves() -> None:
    for name in ("dense", "convolutional", "residual"):
        model, read, ball = case(name, 1, L2(), 0.0)
        with torch.no_grad():
            outputs = model(ball.centres).flatten(1)
        for method in METHODS:
            found = bounds(method, read, ball)
            torch.testing.assert_close(found, torch.cat([outputs, -outputs], dim=1))


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**16), norm=st.sampled_from(NORMS))
def test_every_value_of_a_network_is_within_its_box(seed: int, norm: Norm) -> None:
    _, (graph, transfers), ball = case("convolutional", seed, norm, 0.2)
    with torch.no_grad():
        boxes = propagate_linear_bounds(graph, transfers, ball, {})
        for count in range(1, len(graph.nodes) + 1):
            part = graph.until(count)
            lower, upper = boxes[part.output].ends
            for number in range(4):
                values = part.run(points_of(ball, seed + number))
                assert ((lower <= values + 1e-9) & (values <= upper + 1e-9)).all()


def test_rows_for_all_samples_alike_give_what_rows_for_each_give() -> None:
    _, (graph, transfers), ball = case("convolutional", 3, L2(), 0.1)
    rows = torch.randn(1, 4, 3, dtype=torch.float64)
    with torch.no_grad():
        boxes = propagate_linear_bounds(graph, transfers, ball, {})
        alike = lower_bounds(graph, transfers, ball, boxes, rows)
        each = lower_bounds(graph, transfers, ball, boxes, rows.expand(3, -1, -1))
    torch.testing.assert_close(alike.floats, each.floats)


@pytest.mark.parametrize("method", METHODS)
def test_what_has_no_bounds_is_refused_by_name(method: Intervals | LinearBounds) -> None:
    ball = Ball(torch.rand(1, 4, dtype=torch.float64), 0.1, Linf())
    read = read_transfer_functions(HouseholderActivation(4).double(), (4,), precise=True)
    with pytest.raises(UnsupportedModuleError, match=r"intervals do not go through it; use the me"):
        bounds(method, read, ball)


def test_sorting_and_other_increasing_functions_have_intervals() -> None:
    torch.manual_seed(0)
    for activation in (MaxMin(), nn.Tanh(), nn.Sigmoid(), nn.Hardtanh()):
        model = nn.Sequential(nn.Linear(4, 4), activation, nn.Linear(4, 2)).double()
        ball = Ball(torch.rand(3, 4, dtype=torch.float64), 0.3, Linf(), (0.0, 1.0))
        read = read_transfer_functions(model, (4,), precise=True)
        found = bounds(Intervals(), read, ball)
        with torch.no_grad():
            outputs = model(points_of(ball, 0))
        assert (torch.cat([outputs, -outputs], dim=1) >= found - 1e-9).all()


@pytest.mark.parametrize("seed", range(3))
def test_maxima_of_values_and_of_fixed_numbers_are_sound(seed: int) -> None:
    torch.manual_seed(seed)
    model = Calls(
        lambda p, x: torch.cat(
            [torch.maximum(p["a"](x), 0.3 * x).abs(), torch.maximum(x, torch.tensor(0.4).to(x))], 1
        ),
        a=nn.Linear(4, 4),
    ).double()
    ball = Ball(torch.rand(3, 4, dtype=torch.float64), 0.3, Linf(), (0.0, 1.0))
    read = read_transfer_functions(model, (4,), precise=True)
    for method in METHODS:
        found = bounds(method, read, ball)
        for number in range(10):
            with torch.no_grad():
                outputs = model(points_of(ball, number))
            assert (torch.cat([outputs, -outputs], dim=1) >= found - 1e-9).all()
