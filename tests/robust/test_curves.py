"""Slopes and shapes of activations, against finite differences."""

import math
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.robust import (
    CURVES,
    ConvexCurve,
    Increasing,
    Largest,
    Smooth,
    TransferFunction,
    lipschitz_bound,
    read_transfer_functions,
)
from rankscope.robust.curves import BENDS


class Calls(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        assert callable(self.function)
        outputs: Tensor = self.function(inputs)
        return outputs


ACTIVATIONS = {
    "relu": nn.ReLU(),
    "abs": Calls(torch.abs),
    "relu6": nn.ReLU6(),
    "hardtanh": nn.Hardtanh(-0.5, 2.0),
    "clamp": Calls(lambda x: x.clamp(min=-1)),
    "clip": Calls(lambda x: torch.clip(x, max=1)),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "hardsigmoid": nn.Hardsigmoid(),
    "log_sigmoid": nn.LogSigmoid(),
    "softsign": nn.Softsign(),
    "softshrink": nn.Softshrink(0.3),
    "tanhshrink": nn.Tanhshrink(),
    "softplus": nn.Softplus(beta=2.0),
    "atan": Calls(torch.atan),
    "erf": Calls(torch.erf),
    "selu": nn.SELU(),
    "sin": Calls(torch.sin),
    "cos": Calls(torch.cos),
    "silu": nn.SiLU(),
    "mish": nn.Mish(),
    "hardswish": nn.Hardswish(),
    "gelu": nn.GELU(),
    "gelu by tanh": nn.GELU(approximate="tanh"),
    "leaky_relu": nn.LeakyReLU(0.3),
    "leaky_relu, steep": nn.LeakyReLU(3.0),
    "leaky_relu, falling": nn.LeakyReLU(-2.0),
    "prelu": nn.PReLU(init=0.25),
    "prelu, steep": nn.PReLU(init=-1.5),
    "elu": nn.ELU(2.0),
    "elu, 1": nn.ELU(),
    "celu": nn.CELU(2.0),
}


class Everything(nn.Module):
    """All activations side by side, so that they are traced once."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(ACTIVATIONS.values())

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([part(inputs) for part in self.parts], dim=1)


@cache
def transfers() -> dict[str, tuple[str, TransferFunction]]:
    """Of every activation, the kind of its operation and its transfer function."""
    graph, read = read_transfer_functions(Everything(), (3,), precise=True)
    by_path = {
        node.path: (node.kind, transfer) for node, transfer in zip(graph.nodes, read, strict=True)
    }
    assert len(by_path) == len(graph.nodes) == len(ACTIVATIONS) + 1
    return {name: by_path[f"parts.{number}"] for number, name in enumerate(ACTIVATIONS)}


def on_a_line(model: nn.Module) -> tuple[Tensor, Tensor]:
    points = torch.linspace(-12, 12, 240_001, dtype=torch.float64)
    with torch.no_grad():
        return points, model.double()(points[None])[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_steepest_slope_is_the_constant(name: str) -> None:
    points, values = on_a_line(ACTIVATIONS[name])
    slopes = (values.diff() / points.diff()).abs()
    (constant,) = transfers()[name][1].growth()
    assert 0.999 * constant <= float(slopes.max()) <= constant * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_shapes_are_what_they_say(name: str) -> None:
    form = transfers()[name][1].form
    points, values = on_a_line(ACTIVATIONS[name])
    if isinstance(form, Increasing):
        assert float(values[points >= form.since].diff().min()) >= 0
        assert form.since == -math.inf or float(values[points <= form.since].diff().max()) <= 0
    if isinstance(form, ConvexCurve):
        for side in (points <= 0, points >= 0):
            slopes = values[side].diff() / points[side].diff()
            assert float(slopes.max() - slopes.min()) < 1e-9
        assert float(values.diff().diff().min()) > -1e-9
        lowest = max(form.lowest, -12.0)
        assert float(values.min()) == pytest.approx(float(values[(points - lowest).abs().argmin()]))


@pytest.mark.parametrize("name", ACTIVATIONS)
@settings(deadline=None, max_examples=20)
@given(middle=st.floats(-8, 8), radius=st.sampled_from([0.0, 1e-9, 1e-3, 0.1, 1.0, 5.0]))
def test_smooth_curves_stay_in_their_range_and_near_their_tangent(
    name: str, middle: float, radius: float
) -> None:
    form = transfers()[name][1].form
    if not isinstance(form, Smooth):
        return
    curve = ACTIVATIONS[name].double()
    ends = torch.tensor([[middle - radius]] * 2, dtype=torch.float64)
    ends[1] = middle + radius
    box = (ends[0][None], ends[1][None])
    points = torch.linspace(float(ends[0]), float(ends[1]), 1001, dtype=torch.float64)
    at = (box[0] + box[1]) / 2
    with torch.no_grad():
        values = curve(points[None])[0]
        lower, upper = form.box([box])
    slope = torch.func.jacfwd(lambda x: curve(x).sum())(at)
    tangent = curve(at)[0, 0] + slope[0, 0] * (points - at[0, 0])
    assert form.remainder is not None
    # float64 itself is charged where the form is used.
    assert float((values - tangent).abs().max()) <= float(form.remainder([box])) + 1e-13
    assert float(values.min()) >= float(lower) - 1e-13
    assert float(values.max()) <= float(upper) + 1e-13


def test_ordinary_networks_can_be_bounded_linearly() -> None:
    for name in ("relu", "abs", "leaky_relu", "prelu"):
        assert isinstance(transfers()[name][1].form, ConvexCurve), name
    model = nn.Sequential(nn.MaxPool2d(2), Calls(lambda x: x.amax(dim=2)))
    for transfer in read_transfer_functions(model, (2, 4, 4))[1]:
        assert isinstance(transfer.form, Largest)


def test_every_curve_in_the_table_is_tested_here() -> None:
    kinds = {kind for kind, _ in transfers().values()}
    assert (set(CURVES) | set(BENDS)) - {"relu6"} <= kinds


def test_values_of_different_shapes_are_refused() -> None:
    with pytest.raises(TypeError, match=r"maximum \(in .*\): values of different shapes"):
        lipschitz_bound(Calls(lambda x: torch.maximum(x, x[:, :1])), (3,))


def test_softmax_is_half_as_steep_as_its_input() -> None:
    model = nn.Softmax(dim=1).double()
    point = torch.zeros(1, 2, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(model, point)  # type: ignore[no-untyped-call]
    norm = float(torch.linalg.matrix_norm(jacobian.reshape(2, 2), 2))
    assert norm == pytest.approx(lipschitz_bound(model, (2,)).value)
