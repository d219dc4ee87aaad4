import copy
import math

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams import Index, Network, to_module
from rankscope.errors import DecompositionError, LayerError
from rankscope.factorize import (
    FORMATS,
    FactorizedLinear,
    Format,
    LinearLayer,
    Path,
    Ranks,
    WeightShape,
    linear_of,
)
from rankscope.factorize.linear import check_names, dense_linear, linear_steps, prepared

SHAPE = WeightShape(24, 16)
FOR_MATRICES = [format for format in FORMATS.values() if format.refusal(SHAPE) is None]
FORMAT = pytest.mark.parametrize("format", FOR_MATRICES, ids=lambda format: format.name)
PATHS = pytest.mark.parametrize("path", [None, *Path])
SVD = FORMATS["svd"]


def _ranks(format: Format) -> Ranks:
    ranks = format.largest_ranks(SHAPE, 300)
    assert ranks is not None
    return ranks


def _layer(format: Format = SVD, *, bias: bool = True) -> FactorizedLinear:
    torch.manual_seed(0)
    linear = nn.Linear(16, 24, bias=bias, dtype=torch.float64)
    return FactorizedLinear.from_dense(linear, format, _ranks(format))


def _inputs() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 3, 16, dtype=torch.float64, generator=generator)


@FORMAT
@pytest.mark.parametrize("bias", [True, False])
@PATHS
def test_outputs_are_those_of_the_rebuilt_layer(
    format: Format, bias: bool, path: Path | None
) -> None:
    layer = _layer(format, bias=bias).eval()
    layer.path = path
    dense = layer.to_dense()
    assert (dense.bias is None) == (not bias)
    torch.testing.assert_close(layer(_inputs()), dense(_inputs()))
    with torch.no_grad():
        torch.testing.assert_close(layer(_inputs()), dense(_inputs()))
    torch.testing.assert_close(layer(_inputs()[0, 0]), dense(_inputs()[0, 0]))


@FORMAT
def test_at_full_ranks_outputs_are_those_of_the_dense_layer(format: Format) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(16, 24, dtype=torch.float64)
    layer = FactorizedLinear.from_dense(linear, format, format.full_ranks(SHAPE))
    # Fits without a closed form end at about the root of the rounding.
    torch.testing.assert_close(layer(_inputs()), linear(_inputs()), rtol=1e-6, atol=1e-6)


def test_at_rank_r_no_matrix_of_that_rank_is_nearer() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(16, 24, bias=False, dtype=torch.float64)
    layer = FactorizedLinear.from_dense(linear, SVD, (5,))
    weight = linear.weight.detach()
    values = torch.linalg.svdvals(weight)
    error = (layer.to_dense().weight.detach() - weight).square().sum()
    torch.testing.assert_close(error, values[5:].square().sum())
    assert SVD.errors(weight, [(5,)])[0] == pytest.approx(
        math.sqrt(float(error / values.square().sum()))
    )


@PATHS
def test_gradients_reach_every_core_on_every_path(path: Path | None) -> None:
    for training in (True, False):
        layer = _layer().train(training)
        layer.path = path
        inputs = _inputs().requires_grad_()
        layer(inputs).square().sum().backward()
        dense = layer.to_dense()
        twin = _inputs().requires_grad_()
        dense(twin).square().sum().backward()
        torch.testing.assert_close(inputs.grad, twin.grad)
        assert all(parameter.grad is not None for parameter in layer.parameters())


def test_a_merged_weight_follows_its_cores() -> None:
    layer = _layer().eval()
    layer.path = Path.MERGED
    with torch.no_grad():
        before = layer(_inputs())
        for core in layer.cores.parameters():
            core.mul_(2)
        assert layer.bias is not None
        torch.testing.assert_close(layer(_inputs()) - layer.bias, 4 * (before - layer.bias))
        layer.quantize(8)
        torch.testing.assert_close(layer(_inputs()), layer.to_dense()(_inputs()))


@PATHS
def test_state_goes_round_and_copies_are_equal(path: Path | None) -> None:
    layer = _layer().eval()
    layer.path = path
    fresh = FactorizedLinear(16, 24, SVD, layer.ranks, dtype=torch.float64).eval()
    assert not torch.allclose(fresh(_inputs()), layer(_inputs()))
    fresh.load_state_dict(layer.state_dict())
    torch.testing.assert_close(fresh(_inputs()), layer(_inputs()))
    torch.testing.assert_close(copy.deepcopy(layer)(_inputs()), layer(_inputs()))


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_outputs_are_near(bits: int) -> None:
    layer = _layer().eval()
    before = layer(_inputs())
    layer.quantize(bits)
    moved = (layer(_inputs()) - before).detach().norm() / before.detach().norm()
    # Two cores, each number moved by at most half of one of 127 (7) steps of the largest.
    assert 0 < float(moved) < 2 * 3 / {8: 127, 4: 7}[bits]
    assert [name for name, _ in layer.named_parameters()] == ["bias"]


@pytest.mark.parametrize(
    ("path", "bits"), [(None, None), (Path.CHAIN, 4), (Path.REBUILT, 8), (Path.MERGED, None)]
)
def test_it_exports_for_any_number_of_rows(path: Path | None, bits: int | None) -> None:
    layer = _layer().eval()
    if bits is not None:
        layer.quantize(bits)
    layer.path = path
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(layer, (_inputs(),), dynamic_shapes=({0: batch},))
    wider = torch.cat([_inputs()] * 3)
    torch.testing.assert_close(exported.module()(wider), layer(wider))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "bits"), [(None, None), (Path.CHAIN, 4), (Path.REBUILT, 8), (Path.MERGED, None)]
)
def test_it_compiles_to_one_graph(
    path: Path | None, bits: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The compiler cannot look through the type checks of these tests.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    layer = _layer().eval()
    if bits is not None:
        layer.quantize(bits)
    layer.path = path
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(_inputs()), layer(_inputs()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_other_dtypes_stay_what_they_are(dtype: torch.dtype) -> None:
    layer = FactorizedLinear.from_dense(nn.Linear(16, 24, dtype=dtype), SVD, (4,))
    assert {parameter.dtype for parameter in layer.parameters()} == {dtype}
    assert layer(torch.ones(2, 16, dtype=dtype)).dtype == dtype
    assert layer.to_dense().weight.dtype == dtype
    assert layer.double()(_inputs()).dtype == torch.float64


def test_the_mode_is_kept() -> None:
    linear = nn.Linear(16, 24).eval()
    layer = FactorizedLinear.from_dense(linear, SVD, (4,))
    assert not layer.training
    assert not layer.to_dense().training


def test_making_a_layer_of_cores_leaves_the_random_numbers_alone() -> None:
    cores = {"right": torch.ones(2, 16), "left": torch.ones(24, 2)}
    state = torch.get_rng_state()
    FactorizedLinear.from_cores(cores, SHAPE, SVD, (2,), bias=torch.zeros(24)).to_dense()
    assert torch.equal(torch.get_rng_state(), state)


def test_the_diagram_has_a_node_for_each_core() -> None:
    diagram = _layer().weight_diagram()
    assert [node.name for node in diagram.nodes] == ["right", "left"]
    assert diagram.output == ("t", "s")


def test_it_says_what_it_keeps() -> None:
    layer = FactorizedLinear(100, 50, SVD, (4,), bias=False)
    assert layer.extra_repr() == (
        "100 -> 50, bias=False, svd at ranks (4,): 600 of 5,000 weights (12.0 %)"
    )
    assert (layer.in_features, layer.out_features) == (100, 50)


def test_convolutions_are_refused() -> None:
    with pytest.raises(LayerError, match=r"needs a matrix, got a weight \(4, 5, 3\)"):
        FactorizedLinear.from_cores({}, WeightShape(4, 5, (3,)), SVD, (1,))


def test_a_bias_of_another_size_is_refused() -> None:
    cores = {"right": torch.ones(2, 16), "left": torch.ones(24, 2)}
    with pytest.raises(LayerError, match=r"24 outputs is needed, got one of shape \(23,\)"):
        FactorizedLinear.from_cores(cores, SHAPE, SVD, (2,), bias=torch.zeros(23))


def test_formats_that_are_svd_in_disguise_are_refused() -> None:
    with pytest.raises(LayerError, match="tucker is svd in disguise"):
        FactorizedLinear(16, 24, FORMATS["tucker"], (2, 2))


def test_weights_that_are_not_finite_are_refused() -> None:
    linear = nn.Linear(16, 24)
    with torch.no_grad():
        linear.weight[3, 4] = math.nan
    with pytest.raises(DecompositionError, match="1 of 384 entries are not finite"):
        FactorizedLinear.from_dense(linear, SVD, (4,))


SMALL_SHAPE = WeightShape(8, 6)
NAMES = [name for name, each in FORMATS.items() if each.refusal(SMALL_SHAPE) is None]


@pytest.mark.parametrize("name", [None, *NAMES])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_rows", [None, 5])
def test_the_steps_of_a_linear_layer_compute_it(
    name: str | None, bias: bool, num_rows: int | None
) -> None:
    layer: LinearLayer = nn.Linear(6, 8, bias=bias)
    if name is not None:
        ranks = FORMATS[name].largest_ranks(SMALL_SHAPE, 48)
        assert ranks is not None
        layer = FactorizedLinear(6, 8, FORMATS[name], ranks, bias=bias)
    layer = layer.double()
    rows = () if num_rows is None else (Index("n", num_rows),)
    network = Network("linear", linear_steps("y", layer, "x", prefix="own.", rows=rows))
    arrays = {f"own.{key}": value for key, value in layer.named_parameters()}
    drawn = to_module(network, arrays)
    inputs = torch.randn(*(() if num_rows is None else (num_rows,)), 6, dtype=torch.float64)
    torch.testing.assert_close(drawn(inputs), layer(inputs))
    assert sum(p.numel() for p in drawn.parameters()) == sum(p.numel() for p in layer.parameters())


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_of_given_tensors_holds_copies(bias: bool) -> None:
    weight = torch.randn(3, 2, dtype=torch.float64)
    layer = linear_of(weight, torch.randn(3, dtype=torch.float64) if bias else None)
    assert torch.equal(layer.weight, weight)
    assert layer.weight.data_ptr() != weight.data_ptr()
    assert (layer.bias is not None) == bias
    assert layer(torch.zeros(5, 2, dtype=torch.float64)).shape == (5, 3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bits", [None, 8])
def test_a_prepared_layer_computes_the_same(bias: bool, bits: int | None) -> None:
    dense = nn.Linear(6, 4, bias=bias, dtype=torch.float64)
    layer = FactorizedLinear.from_dense(dense, SVD, (2,))
    if bits is not None:
        layer.quantize(bits)
    inputs = torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(prepared(layer)(inputs), layer(inputs))
    torch.testing.assert_close(dense_linear(layer)(inputs), layer(inputs))
    assert prepared(dense) is dense
    assert dense_linear(dense) is dense


def test_an_unknown_name_is_refused() -> None:
    check_names("Layer", {"a": 1}, ("a", "b"))
    with pytest.raises(LayerError, match="Layer has no weight 'c'; choose among a, b"):
        check_names("Layer", {"a": 1, "c": 2}, ("a", "b"))
