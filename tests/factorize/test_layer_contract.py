"""What every factorized layer promises, in every format: one suite over all of them.

A new layer or format is a new row of `CASES`.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from rankscope.compression import Call, Site, observe, read_sites
from rankscope.compression.usage import flops
from rankscope.diagrams import IN_ORDER, Network, to_module
from rankscope.diagrams.cost import cost
from rankscope.factorize import (
    DENSE,
    FORMATS,
    FactorizedConv,
    FactorizedConv1d,
    FactorizedConv2d,
    FactorizedEmbedding,
    FactorizedGRU,
    FactorizedLinear,
    FactorizedLSTM,
    FactorizedMultiheadAttention,
    FactorizedRecurrent,
    Format,
    Path,
    Ranks,
    ReshapedFormat,
    WeightShape,
)
from rankscope.factorize.formats.format import BACKWARD

KERNEL_FORMATS = tuple(FORMATS)
MATRIX_FORMATS = tuple(
    name for name, format in FORMATS.items() if format.refusal(WeightShape(8, 6)) is None
)
Make = Callable[[Format], nn.Module]


@dataclass(frozen=True)
class Kind:
    """One kind of layer: how to make it in a format, and inputs for it."""

    make: Make
    inputs: Callable[[], tuple[Tensor, ...]]
    formats: tuple[str, ...]


def _ranks(format: Format, *sizes: int) -> Ranks:
    shape = WeightShape(sizes[0], sizes[1], tuple(sizes[2:]))
    return tuple(min(2, limit) for limit in format.max_ranks(shape))


def _linear(format: Format) -> nn.Module:
    return FactorizedLinear.from_dense(nn.Linear(6, 8), format, _ranks(format, 8, 6))


def _conv1d(format: Format) -> nn.Module:
    dense = nn.Conv1d(8, 12, 3, padding="same", dilation=2, groups=2)
    return FactorizedConv1d.from_dense(dense, format, _ranks(format, 6, 4, 3))


def _conv2d(format: Format) -> nn.Module:
    dense = nn.Conv2d(6, 8, (3, 2), stride=2, padding=1, padding_mode="circular")
    return FactorizedConv2d.from_dense(dense, format, _ranks(format, 8, 6, 3, 2))


def _embedding(format: Format) -> nn.Module:
    return FactorizedEmbedding.from_dense(nn.Embedding(12, 8), format, _ranks(format, 12, 8))


def _attention(format: Format) -> nn.Module:
    dense = nn.MultiheadAttention(8, 2, batch_first=True)
    chosen = {name: (format, _ranks(format, 8, 8)) for name in ("query", "value", "out")}
    return FactorizedMultiheadAttention.from_dense(dense, chosen)


def _lstm(format: Format) -> nn.Module:
    chosen = {"weight_ih_l0": (format, _ranks(format, 32, 6))}
    return FactorizedLSTM.from_dense(nn.LSTM(6, 8, batch_first=True), chosen)


def _gru(format: Format) -> nn.Module:
    chosen = {"weight_hh_l0": (format, _ranks(format, 24, 8))}
    return FactorizedGRU.from_dense(nn.GRU(6, 8), chosen)


def _sequences() -> tuple[Tensor, ...]:
    return (torch.randn(2, 3, 6),)


KINDS: dict[str, Kind] = {
    "linear": Kind(_linear, _sequences, MATRIX_FORMATS),
    "conv1d": Kind(_conv1d, lambda: (torch.randn(2, 8, 7),), KERNEL_FORMATS),
    "conv2d": Kind(_conv2d, lambda: (torch.randn(2, 6, 6, 5),), KERNEL_FORMATS),
    "embedding": Kind(_embedding, lambda: (torch.tensor([[3, 0], [11, 5]]),), MATRIX_FORMATS),
    "attention": Kind(_attention, lambda: (torch.randn(2, 3, 8),) * 3, MATRIX_FORMATS),
    "lstm": Kind(_lstm, _sequences, ("svd", "r-tensor-train")),
    "gru": Kind(_gru, _sequences, ("svd", "r-cp")),
}
CASES = [(kind, format) for kind, each in KINDS.items() for format in each.formats]
CASE = pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda text: str(text))
KIND = pytest.mark.parametrize("kind", KINDS)


@cache
def _made(kind: str, name: str) -> nn.Module:
    torch.manual_seed(0)
    return KINDS[kind].make(FORMATS[name])


def _layer(kind: str, name: str, *, path: Path | None = None) -> nn.Module:
    layer = copy.deepcopy(_made(kind, name)).eval()
    for part in layer.modules():
        if hasattr(part, "path"):
            setattr(part, "path", path)  # noqa: B010 (modules are not typed so)
    return layer


def _inputs(kind: str, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    inputs = KINDS[kind].inputs()
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


def _outputs(layer: Callable[..., object], inputs: tuple[Tensor, ...]) -> Tensor:
    found = layer(*inputs)
    first = found[0] if isinstance(found, tuple) else found
    assert isinstance(first, Tensor)
    return first


class _Together(nn.Module):
    """The same kind of layer in all formats, so that a graph is traced only once."""

    def __init__(self, kind: str, path: Path | None, names: tuple[str, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_layer(kind, name, path=path) for name in names])

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        return [_outputs(layer, inputs) for layer in self.layers]


@CASE
@pytest.mark.parametrize("path", [None, *Path])
def test_outputs_are_those_of_the_dense_layer(kind: str, name: str, path: Path | None) -> None:
    layer, inputs = _layer(kind, name, path=path).double(), _inputs(kind, torch.float64)
    dense = layer.to_dense()  # type: ignore[operator]
    torch.testing.assert_close(_outputs(layer, inputs), _outputs(dense, inputs))
    with torch.no_grad():
        torch.testing.assert_close(_outputs(layer, inputs), _outputs(dense, inputs))


@CASE
def test_a_saved_state_gives_the_same_outputs_in_another_layer(kind: str, name: str) -> None:
    layer, other, inputs = _layer(kind, name), _layer(kind, name), _inputs(kind)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_()
        _outputs(other, inputs)  # whatever is kept from now on must not survive the loading
        other.load_state_dict(layer.state_dict())
        torch.testing.assert_close(_outputs(other, inputs), _outputs(layer, inputs))


@CASE
def test_a_copy_is_the_same_and_on_its_own(kind: str, name: str) -> None:
    layer, inputs = _layer(kind, name), _inputs(kind)
    with torch.no_grad():
        before = _outputs(layer, inputs).clone()
        twin = copy.deepcopy(layer)
        torch.testing.assert_close(_outputs(twin, inputs), before)
        for parameter in twin.parameters():
            parameter.zero_()
        torch.testing.assert_close(_outputs(layer, inputs), before)


@CASE
def test_gradients_reach_every_parameter_and_are_right(kind: str, name: str) -> None:
    layer, inputs = _layer(kind, name).double(), _inputs(kind, torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    values = tuple(parameter.detach().clone().requires_grad_() for parameter in layer.parameters())

    def outputs(*parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        return _outputs(lambda *each: functional_call(layer, given, each), inputs)

    # A softmax does not change with the bias of the keys; all else counts.
    found = torch.autograd.grad(outputs(*values).square().sum(), values)
    reached = [bool(gradient.abs().max() > 1e-12) for gradient in found]
    assert [name for name, is_reached in zip(names, reached, strict=True) if not is_reached] in (
        [],
        ["key.bias"],
    )
    assert torch.autograd.gradcheck(outputs, values, fast_mode=True)


@CASE
def test_eight_bits_change_outputs_little(kind: str, name: str) -> None:
    layer, inputs = _layer(kind, name), _inputs(kind)
    with torch.no_grad():
        # Of fitted cores some nearly cancel, and rounding shows; numbers of one size do not.
        for parameter in layer.parameters():
            parameter.normal_()
        exact = _outputs(layer, inputs)
        layer.quantize(8)  # type: ignore[operator]
        rounded = _outputs(layer, inputs)
        # Each of up to five cores is right to 1/254 of the largest in its row.
        assert (rounded - exact).norm() < 0.05 * exact.norm()
        assert not torch.equal(rounded, exact)


@CASE
def test_the_diagram_computes_the_layer_and_costs_what_the_planner_counts(
    kind: str, name: str
) -> None:
    layer = _layer(kind, name, path=Path.CHAIN).double()
    network, given, example = _drawn(kind, name, layer)
    drawn = to_module(network, dict(layer.named_parameters()), method=IN_ORDER)
    wanted = _outputs(layer, example)
    torch.testing.assert_close(drawn(**given).reshape(wanted.shape), wanted)
    # The same weights, as the planner finds them in a dense model and counts them in this format.
    sites, calls = _observed(kind)
    planned = sum(flops(site, *_written(layer, site.part), calls[site.name]) for site in sites)
    order = BACKWARD if kind == "embedding" else IN_ORDER
    products = [r for r in cost(network, order).regions if r.diagram.endswith(" product")]
    assert sum(region.flops for region in products) == planned > 0


@cache
def _observed(kind: str) -> tuple[tuple[Site, ...], Mapping[str, tuple[Call, ...]]]:
    """Sites of the dense layer, the same for every format, and how each of them is used."""
    name = KINDS[kind].formats[0]
    layer = _layer(kind, name).double()
    dense = layer.to_dense()  # type: ignore[operator]
    sites = read_sites(dense).sites
    return sites, observe(dense, sites, _drawn(kind, name, layer)[2]).calls


def _drawn(
    kind: str, name: str, layer: nn.Module
) -> tuple[Network, dict[str, Tensor], tuple[Tensor, ...]]:
    """A layer's diagram, its inputs by name, and the same as the layer takes them."""
    inputs = _inputs(kind, torch.float64)
    diagram: Callable[..., Network] = layer.diagram  # type: ignore[assignment]
    if kind == "attention":  # of one sample
        one = {key: x[0] for key, x in zip(("query", "key", "value"), inputs, strict=True)}
        return diagram(num_queries=3, num_keys=3), one, tuple(x[:1] for x in inputs)
    if kind in ("lstm", "gru"):  # one step of one sample
        state = {
            key: torch.zeros(8, dtype=torch.float64) for key in ("h", "c")[: 2 - (kind == "gru")]
        }
        return diagram(), {"x": inputs[0][0, 0], **state}, (inputs[0][:1, :1],)
    (given,) = inputs
    format = FORMATS[name]
    if kind == "embedding" and isinstance(format, ReshapedFormat):
        digits = format.digits(WeightShape(12, 8), given)
        named = {f"x_{place}": each for place, each in enumerate(digits, start=1)}
        return diagram(*given.shape), named, inputs
    sizes = (given.shape[0], *given.shape[2:]) if kind.startswith("conv") else given.shape
    return diagram(*(sizes[:-1] if kind == "linear" else sizes)), {"x": given}, inputs


def _written(layer: nn.Module, part: str) -> tuple[Format, Ranks]:
    if isinstance(layer, FactorizedMultiheadAttention):
        layer = layer.projections[part]
    elif isinstance(layer, FactorizedRecurrent):
        layer = layer.weight(part)
    if isinstance(layer, nn.Linear):
        return DENSE, ()
    assert isinstance(layer, FactorizedLinear | FactorizedConv | FactorizedEmbedding)
    return layer.format, layer.ranks


@pytest.mark.slow
@KIND
@pytest.mark.parametrize("path", [None, Path.MERGED])
def test_an_exported_graph_gives_the_same_outputs(kind: str, path: Path | None) -> None:
    layers, inputs = _Together(kind, path, KINDS[kind].formats), _inputs(kind)
    with torch.no_grad():
        wanted = layers(*inputs)
        exported = torch.export.export(layers, inputs)
        torch.testing.assert_close(exported.module()(*inputs), wanted)


@pytest.mark.slow
@pytest.mark.usefixtures("compilable")
@KIND
def test_a_compiled_graph_gives_the_same_outputs(kind: str) -> None:
    # Tracing is slow: four formats in one kind of layer, in the others one plain and one reshaped;
    # the export reads all.
    formats = KINDS[kind].formats
    names = (*formats[:3], formats[-1]) if kind == "conv2d" else (formats[0], formats[-1])
    layers, inputs = _Together(kind, None, names), _inputs(kind)
    with torch.no_grad():
        wanted = layers(*inputs)
        # Recurrent layers run time step by time step, outside of the graph.
        fullgraph = kind not in ("lstm", "gru")
        # How a graph is split into kernels is the export's test: this one is about reading Python.
        compiled = torch.compile(layers, backend="eager", fullgraph=fullgraph)
        torch.testing.assert_close(compiled(*inputs), wanted)
