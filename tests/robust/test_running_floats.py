"""A network that is run in other floats than it was trained in: what is certified, for which."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import RobustnessError
from rankscope.robust import (
    L2,
    LIBRARY,
    Arithmetic,
    Intervals,
    LinearBounds,
    Linf,
    Lipschitz,
    Method,
    OrthogonalLinear,
    ProjectedDescent,
    Samples,
    Threat,
    certify,
    in_floats,
    lost_to_rounding,
)

flint = pytest.importorskip("flint")

METHODS: list[Method] = [Lipschitz(), Intervals(), LinearBounds()]
QUICK = ProjectedDescent(steps=1)
CENTRE, WRONG, RADIUS = torch.tensor([[0.43]]), 0.49609375, 0.066094007


def offset_network(offset: float = 65536.0) -> nn.Sequential:
    """Both signs of x - 1/2, by way of a large number: float32 rounds x to multiples of 1/128."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    weights = [[[1.0]], [offset], [[1.0], [-1.0]], [-offset - 0.5, offset + 0.5]]
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), weights, strict=True):
            parameter.copy_(torch.tensor(values))
    return model


def holds(method: Method, model: nn.Module, inputs: Tensor, radii: list[float]) -> Tensor:
    """(radii, samples), whether the model's own label is proved to stay."""
    with torch.no_grad():
        outputs = model(inputs)
    samples = Samples(inputs, outputs.argmax(dim=1), outputs)
    threats = [Threat(radius, L2()) for radius in radii]
    return method.prove(model, samples, threats).holds


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_what_float32_breaks_and_float64_keeps(method: Method) -> None:
    model = offset_network()
    labels = model(CENTRE).argmax(dim=1)
    assert int(model(torch.tensor([[WRONG]])).argmax()) != int(labels)
    (short,) = certify(model, CENTRE, labels, [RADIUS], method=method, attack=QUICK).radii
    assert (short.certified, short.attacked, short.lost_to_rounding) == (0.0, 0.0, 1.0)

    found = certify(
        model, CENTRE, labels, [RADIUS, 0.0701], method=method, attack=QUICK, dtype=torch.float64
    )
    assert found.arithmetic == found.to_dict()["arithmetic"] == "float64"
    # The label changes at 1/2, at distance 0.07.
    assert [(row.certified, row.attacked) for row in found.radii] == [(1.0, 1.0), (0.0, 0.0)]
    assert int(copy.deepcopy(model).double()(torch.tensor([[WRONG]]).double()).argmax()) == labels
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.slow
@settings(deadline=None, max_examples=4)
@given(
    seed=st.integers(0, 2**16),
    bias=st.sampled_from([0.0, 2.0**10, 2.0**16]),
    method=st.sampled_from(METHODS),
)
def test_float64_certifies_whatever_float32_does(seed: int, bias: float, method: Method) -> None:
    """The same weights with less rounding: sample by sample, and nothing is lost at these radii."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    first, last = model[0], model[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        first.bias.add_(bias)
        last.bias.sub_(last.weight.sum(dim=1) * bias)
    inputs, radii = torch.rand(8, 3), [1e-4, 1e-2, 0.1]
    double, exact = in_floats(model, inputs, torch.float64)
    short, long = holds(method, model, inputs, radii), holds(method, double, exact, radii)
    assert not (short & ~long).any()
    labels = double(exact).argmax(dim=1)
    found = certify(model, inputs, labels, radii, method=method, attack=QUICK, dtype=torch.float64)
    assert [row.certified for row in found.radii] == [float(r.double().mean()) for r in long]
    assert all(row.certified <= row.attacked for row in found.radii)
    threats = [Threat(radius, L2()) for radius in radii]
    lost = lost_to_rounding(model, inputs, labels, threats, method=method, dtype=torch.float64)
    assert lost == tuple(row.lost_to_rounding for row in found.radii)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_float64_has_its_own_counterexample(method: Method) -> None:
    """2^45 + x is rounded to multiples of 1/128 in float64, as 65536 + x is in float32."""
    offset = 2.0**45
    model = offset_network().double()
    with torch.no_grad():
        model[0].get_parameter("bias").fill_(offset)
        biases = torch.tensor([-offset - 0.5, offset + 0.5], dtype=torch.float64)
        model[2].get_parameter("bias").copy_(biases)
    labels = model(CENTRE.double()).argmax(dim=1)
    (row,) = certify(model, CENTRE, labels, [0.0695], method=method, attack=QUICK).radii
    assert (row.certified, row.attacked) == (0.0, 0.0)


class ShortInside(nn.Module):
    """Converts to float32 whatever it is given, and back."""

    def __init__(self, inner: nn.Sequential) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        first, last = self.inner[0], self.inner[2]
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        hidden = functional.linear(inputs.float(), first.weight.float(), first.bias.float())
        outputs = functional.linear(hidden.relu(), last.weight.float(), last.bias.float())
        return outputs.double()


def test_a_model_that_names_shorter_floats_itself_is_certified_for_these() -> None:
    model = ShortInside(offset_network())
    labels = model(CENTRE).argmax(dim=1)
    found = certify(
        model, CENTRE, labels, [RADIUS], method=Intervals(), attack=QUICK, dtype=torch.float64
    )
    assert found.arithmetic == "float32, float64"
    assert (found.radii[0].certified, found.radii[0].attacked) == (0.0, 0.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_samples_are_taken_in_the_floats_of_the_model(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, inputs = nn.Linear(4, 3).to(dtype), torch.rand(5, 4)
    labels = model(inputs.to(dtype)).argmax(dim=1)
    name = str(dtype).removeprefix("torch.")
    for method, norm in ((Lipschitz(), L2()), (Intervals(), Linf())):
        found = certify(model, inputs, labels, [1e-4], method=method, norm=norm, attack=QUICK)
        assert (found.arithmetic, found.clean) == (name, 1.0)
        again = certify(
            nn.Linear(4, 3), inputs, labels, [1e-4], method=method, attack=QUICK, dtype=dtype
        )
        assert again.arithmetic == name
    assert f"run in {name}." in found._repr_html_()


def test_orthogonal_layers_are_orthogonal_to_the_floats_they_are_run_in() -> None:
    """Starts that were rounded to float32 are made orthogonal again in float64."""
    torch.manual_seed(0)
    model, inputs = OrthogonalLinear(6, 6), torch.rand(3, 6)
    labels = model(inputs).argmax(dim=1)
    short, long = (
        certify(model, inputs, labels, [1e-3], attack=QUICK, dtype=dtype).lipschitz
        for dtype in (None, torch.float64)
    )
    assert short is not None
    assert long is not None
    assert long - 1 < 1e-10 < short - 1


def test_refusals_name_what_was_wanted() -> None:
    model, inputs, labels = nn.Linear(2, 2), torch.rand(1, 2), torch.zeros(1, dtype=torch.long)
    for dtype, name in ((torch.float8_e4m3fn, "float8_e4m3fn"), (torch.int64, "int64")):
        with pytest.raises(
            RobustnessError,
            match=f"dtype is one of float32, float64, bfloat16, float16, got {name}",
        ):
            certify(model, inputs, labels, [0.1], dtype=dtype)
    with pytest.raises(RobustnessError, match=r"up to 65536 in 0\.bias, and float16 ends at 65504"):
        certify(offset_network(), CENTRE, labels, [0.1], dtype=torch.float16)
    with pytest.raises(RobustnessError, match=r"in samples, and float16 ends at 65504"):
        certify(model, 1e6 * inputs, labels, [0.1], pixels=None, dtype=torch.float16)
    model.register_buffer("mask", torch.ones(2, dtype=torch.bool))
    model.register_buffer("nothing", torch.zeros(0))
    assert certify(model, inputs, labels, [0.0], dtype=torch.float16).arithmetic == "float16"
    model.register_buffer("phase", torch.zeros(1, dtype=torch.complex64))
    with pytest.raises(RobustnessError, match="Linear holds complex numbers"):
        certify(model, inputs, labels, [0.1], dtype=torch.float64)
    with pytest.raises(RobustnessError, match=r"Linear cannot be run .* \(3,\) in float32"):
        certify(nn.Linear(2, 2), torch.rand(1, 3), labels, [0.1])
    with pytest.raises(RobustnessError, match="at least one radius, got none"):
        lost_to_rounding(nn.Linear(2, 2), inputs, labels, [])


def exact_erf_unit(x: Any) -> Any:
    return x * (1 + (x / flint.arb(2).sqrt()).erf()) / 2


def exact_tanh_unit(x: Any) -> Any:
    inner = (2 / flint.arb.pi()).sqrt() * (x + flint.arb("0.044715") * x**3)
    return x * (1 + inner.tanh()) / 2


CURVES: list[tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = [
    (torch.tanh, lambda x: x.tanh()),
    (torch.sigmoid, lambda x: 1 / (1 + (-x).exp())),
    (torch.erf, lambda x: x.erf()),
    (torch.sin, lambda x: x.sin()),
    (functional.silu, lambda x: x / (1 + (-x).exp())),
    (functional.logsigmoid, lambda x: -(1 + (-x).exp()).log()),
    (functional.mish, lambda x: x * (1 + x.exp()).log().tanh()),
    (functional.gelu, exact_erf_unit),
    (lambda x: functional.gelu(x, approximate="tanh"), exact_tanh_unit),
    (torch.exp, lambda x: x.exp()),
]


@pytest.mark.parametrize(("function", "exact"), CURVES)
def test_library_functions_in_float64_are_as_good_as_they_are_taken_to_be(
    function: Callable[[Tensor], Tensor], exact: Callable[[Any], Any]
) -> None:
    """As for float32, but against balls of 200 bits; relative where the result is not bounded."""
    generator = torch.Generator().manual_seed(0)
    points = torch.cat([torch.linspace(-40, 40, 641), torch.randn(160, generator=generator)])
    points = points.double() + 1e-9
    unit = Arithmetic.of(torch.float64).unit
    flint.ctx.prec = 200
    for point, value in zip(points.tolist(), function(points).tolist(), strict=True):
        true = exact(flint.arb(point))
        allowed = 2 * abs(point) + 2 if function is not torch.exp else true
        assert abs(true - flint.arb(value)) <= LIBRARY / 2 * flint.arb(unit) * allowed


def test_tokens_stay_integers() -> None:
    tokens = torch.tensor([[1, 2]])
    for dtype in (None, torch.float64):
        _, inputs = in_floats(nn.Embedding(3, 2), tokens, dtype)
        torch.testing.assert_close(inputs, tokens, rtol=0, atol=0)
