import copy
import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams import to_module
from rankscope.errors import LayerError
from rankscope.factorize import FORMATS, FactorizedLinear, FactorizedMultiheadAttention, WeightShape
from rankscope.factorize.projected_attention import PROJECTIONS

SVD = FORMATS["svd"]
SETTINGS: list[dict[str, int | bool]] = [
    {},
    {"bias": False, "batch_first": True},
    {"kdim": 4, "vdim": 5},
    {"add_bias_kv": True, "batch_first": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True, "kdim": 3},
]


def _dense(**settings: int | bool) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    dense = nn.MultiheadAttention(6, 2, dtype=torch.float64, **settings)
    for parameter in dense.parameters():
        nn.init.normal_(parameter)
    return dense


def _at_full_rank(dense: nn.MultiheadAttention) -> FactorizedMultiheadAttention:
    sizes = {"query": 6, "key": dense.kdim, "value": dense.vdim, "out": 6}
    choices = {name: (SVD, SVD.full_ranks(WeightShape(6, size))) for name, size in sizes.items()}
    return FactorizedMultiheadAttention.from_dense(dense, choices)


def _inputs(dense: nn.MultiheadAttention) -> tuple[Tensor, Tensor, Tensor]:
    """Three samples, five queries, four keys."""
    sizes = ((5, 6), (4, dense.kdim), (4, dense.vdim))
    inputs = [torch.randn(3, length, size, dtype=torch.float64) for length, size in sizes]
    query, key, value = inputs if dense.batch_first else [each.transpose(0, 1) for each in inputs]
    return query, key, value


def _masks() -> Iterator[tuple[Tensor | None, Tensor | None]]:
    """Of a call with five queries, four keys, three samples and two heads."""
    hidden = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]])
    yield from itertools.product((None, hidden.bool()), (None, torch.ones(5, 4).triu(1).bool()))
    numbers = torch.randn(3, 4, dtype=torch.float64)
    yield numbers, torch.randn(6, 5, 4, dtype=torch.float64)
    yield None, torch.randn(5, 4, dtype=torch.float64)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_at_full_rank_it_is_the_dense_attention(settings: dict[str, int | bool]) -> None:
    dense = _dense(**settings)
    layer = _at_full_rank(dense)
    inputs = _inputs(dense)
    for (padding, mask), needed, averaged in itertools.product(_masks(), (True, False), (0, 1)):
        call = {"need_weights": needed, "average_attn_weights": bool(averaged)}
        wanted = dense(*inputs, key_padding_mask=padding, attn_mask=mask, **call)
        outputs, weights = layer(*inputs, key_padding_mask=padding, attn_mask=mask, **call)
        torch.testing.assert_close(outputs, wanted[0], atol=1e-12, rtol=1e-12)
        assert (weights is None) == (wanted[1] is None)
        if weights is not None:
            torch.testing.assert_close(weights, wanted[1], atol=1e-12, rtol=1e-12)


def test_a_single_sequence_needs_no_batch() -> None:
    dense = _dense(kdim=4, vdim=5)
    inputs = [tensor[:, 0] for tensor in _inputs(dense)]
    padding = torch.tensor([False, True, False, False])
    wanted = dense(*inputs, key_padding_mask=padding)
    outputs, weights = _at_full_rank(dense)(*inputs, key_padding_mask=padding)
    torch.testing.assert_close(outputs, wanted[0])
    torch.testing.assert_close(weights, wanted[1])


def test_a_causal_hint_changes_nothing_beside_its_mask() -> None:
    dense = _dense()
    layer = _at_full_rank(dense)
    inputs = torch.randn(5, 3, 6, dtype=torch.float64)
    mask = torch.ones(5, 5).triu(1).bool()
    plain = layer(inputs, inputs, inputs, attn_mask=mask, need_weights=False)[0]
    hinted = dense(inputs, inputs, inputs, attn_mask=mask, need_weights=False, is_causal=True)[0]
    call = {"attn_mask": mask, "need_weights": False, "is_causal": True}
    torch.testing.assert_close(plain, hinted)
    assert torch.equal(layer(inputs, inputs, inputs, **call)[0], plain)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_dense_layer_it_stands_for_computes_the_same(settings: dict[str, int | bool]) -> None:
    choices = {"query": (SVD, (2,)), "key": (SVD, (1,)), "out": (SVD, (3,))}
    layer = FactorizedMultiheadAttention.from_dense(_dense(**settings), choices)
    dense = layer.to_dense()
    inputs = _inputs(dense)
    torch.testing.assert_close(layer(*inputs)[0], dense(*inputs)[0])


def test_only_the_named_projections_are_factorized() -> None:
    dense = _dense()
    layer = FactorizedMultiheadAttention.from_dense(dense, {"value": (SVD, (2,))})
    kinds = {name: type(module) for name, module in layer.projections.items()}
    assert kinds == dict.fromkeys(PROJECTIONS, nn.Linear) | {"value": FactorizedLinear}
    # Two cores of 6 x 2 in place of 36 weights.
    count = sum(parameter.numel() for parameter in dense.parameters())
    assert layer.num_parameters == count - 36 + 24


def test_training_mode_and_dropout_are_taken_over() -> None:
    dense = nn.MultiheadAttention(6, 2, dropout=0.25).eval()
    layer = FactorizedMultiheadAttention.of(dense)
    assert not layer.training
    assert not layer.to_dense().training
    assert layer.to_dense().dropout == 0.25
    inputs = torch.randn(5, 3, 6)
    torch.testing.assert_close(layer(inputs, inputs, inputs), dense(inputs, inputs, inputs))
    layer.train()
    weights = layer(inputs, inputs, inputs, average_attn_weights=False)[1]
    assert (weights == 0).any()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_transformer_layers_call_it_in_eval_mode_too(norm_first: bool, grad: bool) -> None:
    torch.manual_seed(0)
    single = nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    dense = nn.TransformerEncoder(single, 2, enable_nested_tensor=False).eval()
    model = copy.deepcopy(dense)
    # What the encoder of a dense model is set to where it can be.
    model.use_nested_tensor = not norm_first
    for layer in model.layers:
        assert isinstance(layer, nn.TransformerEncoderLayer)
        choices = dict.fromkeys(PROJECTIONS, (SVD, (8,)))
        attention = FactorizedMultiheadAttention.from_dense(layer.self_attn, choices)
        layer.register_module("self_attn", attention)
    inputs = torch.randn(3, 5, 8, dtype=torch.float64)
    padding = torch.arange(5) >= torch.tensor([5, 3, 2])[:, None]
    causal = torch.ones(5, 5).triu(1).bool()
    kept = ~padding
    with torch.set_grad_enabled(grad):
        for mask, hidden in itertools.product((None, causal), (None, padding)):
            wanted = dense(inputs, mask, src_key_padding_mask=hidden)
            got = model(inputs, mask, src_key_padding_mask=hidden)
            chosen = kept if hidden is not None else torch.ones_like(kept)
            torch.testing.assert_close(got[chosen], wanted[chosen])


def test_a_decoder_layer_can_hold_it_twice() -> None:
    torch.manual_seed(0)
    dense = nn.TransformerDecoderLayer(8, 2, 16, dtype=torch.float64).eval()
    model = copy.deepcopy(dense)
    for name in ("self_attn", "multihead_attn"):
        attention = FactorizedMultiheadAttention.of(getattr(dense, name))
        model.register_module(name, attention)
    target, memory = torch.randn(4, 3, 8).double(), torch.randn(6, 3, 8).double()
    torch.testing.assert_close(model(target, memory), dense(target, memory))


def test_state_copies_and_quantized_cores() -> None:
    layer = FactorizedMultiheadAttention.from_dense(
        nn.MultiheadAttention(16, 2, batch_first=True, add_bias_kv=True),
        dict.fromkeys(PROJECTIONS, (SVD, (8,))),
    ).eval()
    inputs = torch.randn(2, 5, 16)
    wanted = layer(inputs, inputs, inputs)[0]
    twin = copy.deepcopy(layer)
    for parameter in twin.parameters():
        nn.init.zeros_(parameter)
    twin.load_state_dict(layer.state_dict())
    assert torch.equal(twin(inputs, inputs, inputs)[0], wanted)
    twin.quantize(8)
    quantized = twin(inputs, inputs, inputs)[0]
    # Codes of 8 bits are off by at most 1/254 of the largest number in a row of a core.
    assert not torch.equal(quantized, wanted)
    torch.testing.assert_close(quantized, wanted, atol=0.05, rtol=0.05)
    torch.testing.assert_close(twin.to_dense()(inputs, inputs, inputs)[0], quantized)


@pytest.mark.slow
@torch.no_grad()  # type checks of the test run break graphs, and then gradients warn
def test_it_exports_and_compiles() -> None:
    torch.compiler.reset()  # else sizes that changed since other tests are no integers
    layer = FactorizedMultiheadAttention.from_dense(
        _dense(batch_first=True), {"query": (SVD, (2,)), "out": (SVD, (3,))}
    ).eval()
    inputs = torch.randn(2, 5, 6, dtype=torch.float64)
    wanted = layer(inputs, inputs, inputs)
    batch, queries, keys = (torch.export.Dim(name, max=64) for name in ("batch", "n", "m"))
    memory = torch.randn(2, 4, 6, dtype=torch.float64)
    sizes = {"query": {0: batch, 1: queries}, "key": {0: batch, 1: keys}}
    sizes["value"] = sizes["key"]
    program = torch.export.export(layer, (inputs, memory, memory), dynamic_shapes=sizes)
    exported = program.module()
    query, key = torch.randn(3, 2, 6).double(), torch.randn(3, 7, 6).double()
    torch.testing.assert_close(exported(query, key, key), layer(query, key, key))
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(compiled(inputs, inputs, inputs), wanted)


@pytest.mark.parametrize("name", ["svd", "r-tensor-train"])
def test_its_diagram_computes_the_same(name: str) -> None:
    dense = _dense(kdim=4, vdim=6)
    shape = WeightShape(6, 6)
    ranks = FORMATS[name].largest_ranks(shape, 30)
    assert ranks is not None
    layer = FactorizedMultiheadAttention.from_dense(
        dense, dict.fromkeys(("query", "value", "out"), (FORMATS[name], ranks))
    )
    query, key, value = (tensor[:, 0] for tensor in _inputs(dense))
    network = layer.diagram(num_queries=5, num_keys=4)
    drawn = to_module(network, dict(layer.named_parameters()))
    assert drawn.input_names == ("query", "key", "value")
    torch.testing.assert_close(drawn(query, key, value), layer(query, key, value)[0])


def test_extra_keys_have_no_diagram() -> None:
    layer = FactorizedMultiheadAttention.of(_dense(add_bias_kv=True, add_zero_attn=True))
    with pytest.raises(LayerError, match=r"2 extra key\(s\) .* cannot be drawn"):
        layer.diagram(num_queries=5, num_keys=4)


def test_it_says_what_it_does_besides_its_projections() -> None:
    layer = FactorizedMultiheadAttention.of(
        nn.MultiheadAttention(6, 2, dropout=0.1, add_bias_kv=True, add_zero_attn=True)
    )
    assert layer.extra_repr() == (
        "num_maps=2, batch_first=False, dropout=0.1, add_bias_kv=True, add_zero_attn=True"
    )


def test_an_unknown_projection_is_refused() -> None:
    dense = _dense()
    message = "has no weight 'in_proj'; choose among query, key, value, out"
    with pytest.raises(LayerError, match=message):
        FactorizedMultiheadAttention.from_dense(dense, {"in_proj": (SVD, (2,))})
    with pytest.raises(LayerError, match=message):
        FactorizedMultiheadAttention.of(dense, {"in_proj": nn.Linear(6, 6)})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((5, 3, 6), (4, 3, 6), (5, 3, 6)), "key and value must have the same length"),
        (((5, 2, 6), (4, 3, 6), (4, 3, 6)), r"got shapes \(5, 2, 6\), \(4, 3, 6\)"),
        (((5, 6), (4, 3, 6), (4, 3, 6)), r"all of order 3, or 2 .* got shapes \(5, 6\)"),
        (((6,), (6,), (6,)), "all of order 3, or 2"),
    ],
)
def test_inputs_that_do_not_fit_together_are_refused(
    shapes: tuple[tuple[int, ...], ...], message: str
) -> None:
    layer = FactorizedMultiheadAttention.of(_dense())
    with pytest.raises(LayerError, match=message):
        layer(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))


def test_a_causal_hint_without_a_mask_is_refused() -> None:
    layer = FactorizedMultiheadAttention.of(_dense())
    with pytest.raises(LayerError, match="only promises that attn_mask is causal, but it is None"):
        layer(*_inputs(layer.to_dense()), is_causal=True)


def test_nested_tensors_are_refused() -> None:
    layer = FactorizedMultiheadAttention.of(nn.MultiheadAttention(6, 2, batch_first=True))
    nested = torch.nested.nested_tensor([torch.zeros(2, 6), torch.zeros(3, 6)], layout=torch.jagged)
    with pytest.raises(LayerError, match="takes no nested tensors; set use_nested_tensor = False"):
        layer(nested, nested, nested)
