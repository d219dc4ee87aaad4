import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.diagrams import to_module
from rankscope.errors import LayerError, TooLargeError
from rankscope.factorize import (
    FORMATS,
    AttentionOptions,
    CoreMatrix,
    DenseCore,
    FactorizedLinear,
    IdentityCore,
    LowRankCore,
    SkipLeftCore,
    SkipRightCore,
    TunableAttention,
    fresh_projections,
)

FORMS: list[type[CoreMatrix]] = [DenseCore, LowRankCore, SkipLeftCore, SkipRightCore]
BATCH_FIRST = AttentionOptions(batch_first=True)


def _dense(**settings: int | bool) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    dense = nn.MultiheadAttention(6, 2, dtype=torch.float64, batch_first=True, **settings)
    for parameter in dense.parameters():
        nn.init.normal_(parameter)
    return dense


def _drawn(form: type[CoreMatrix], dropout: float = 0.0) -> TunableAttention:
    """Six features, 2 x 2 channels, everything at random."""
    torch.manual_seed(0)
    core = form.of_heads(4, 1) if form is IdentityCore else form.of_heads(2, 2)
    layer = TunableAttention.from_sizes(
        6, core, options=AttentionOptions(dropout, batch_first=True)
    ).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


def _naive(layer: TunableAttention, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """The definition, with all R maps at once."""
    q, k, v = layer.query(query), layer.key(key), layer.value(key)
    scores = layer.scale * torch.einsum("tr,bnr,bmr->btnm", layer.core.matrix(), q, k)
    maps = torch.softmax(scores if mask is None else scores + mask, -1)
    outputs: Tensor = layer.out(torch.einsum("btnm,bmt->bnt", maps, v))
    return outputs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"bias": False}, {"kdim": 4, "vdim": 5}, {"add_bias_kv": True, "add_zero_attn": True}],
    ids=str,
)
def test_multi_head_attention_is_contained_exactly(
    form: type[CoreMatrix], settings: dict[str, int | bool]
) -> None:
    dense = _dense(**settings)
    layer = TunableAttention.from_multihead(dense, form)
    assert layer.stable_rank() == pytest.approx(2)
    query = torch.randn(3, 5, 6, dtype=torch.float64)
    key, value = (torch.randn(3, 4, n, dtype=torch.float64) for n in (dense.kdim, dense.vdim))
    padding = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 0], [0, 0, 0, 0]]).bool()
    masks = (None, torch.ones(5, 4).triu(1).bool(), torch.randint(2, (6, 5, 4)).bool())
    masks[-1][:, :, 0] = False  # every query sees something
    padding[:, 0] = False
    for mask, hidden in itertools.product(masks, (None, padding)):
        call = {"key_padding_mask": hidden, "attn_mask": mask}
        wanted, weights = dense(query, key, value, **call)
        got, averaged = layer(query, key, value, **call)
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(averaged, weights, atol=1e-12, rtol=1e-12)


def test_cross_attention_converts_in_the_other_layout_too() -> None:
    dense = nn.MultiheadAttention(6, 3, dtype=torch.float64)
    query, key = torch.randn(5, 2, 6).double(), torch.randn(4, 2, 6).double()
    got = TunableAttention.from_multihead(dense)(query, key, key)
    torch.testing.assert_close(got, dense(query, key, key), atol=1e-12, rtol=1e-12)


@settings(deadline=None, max_examples=40)
@given(
    form=st.sampled_from([*FORMS, IdentityCore]),
    max_entries=st.integers(1, 2000),
    batch=st.integers(1, 3),
    num_queries=st.integers(1, 5),
    masked=st.sampled_from(["nothing", "keys", "queries", "samples"]),
)
def test_blocks_of_any_size_compute_the_definition(
    form: type[CoreMatrix], max_entries: int, batch: int, num_queries: int, masked: str
) -> None:
    layer = _drawn(form)
    layer.max_entries = max_entries
    query, key = (torch.randn(batch, n, 6, dtype=torch.float64) for n in (num_queries, 3))
    shapes = {"keys": (batch, 3), "queries": (num_queries, 3), "samples": (batch, num_queries, 3)}
    mask = torch.randn(shapes[masked], dtype=torch.float64) if masked in shapes else None
    which = "key_padding_mask" if masked == "keys" else "attn_mask"
    got, weights = layer(query, key, key, **{which: mask})
    broadcast = {"keys": (slice(None), None, None), "samples": (slice(None), None)}
    added = None if mask is None else mask[broadcast.get(masked, ())]
    torch.testing.assert_close(got, _naive(layer, query, key, added))
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_blocks_give_the_gradients_of_the_whole() -> None:
    whole = _drawn(DenseCore)
    blocks = copy.deepcopy(whole)
    blocks.max_entries = 50
    inputs = torch.randn(3, 4, 6, dtype=torch.float64)
    for layer in (whole, blocks):
        layer(inputs, inputs, inputs)[0].square().sum().backward()
    for wanted, got in zip(whole.parameters(), blocks.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad)


def test_no_tensor_is_larger_than_allowed() -> None:
    layer = _drawn(DenseCore)
    layer.max_entries = 60
    sizes: list[int] = []
    plain = layer.core.scores

    def watched(query: Tensor, key: Tensor) -> Tensor:
        scores = plain(query, key)
        sizes.append(scores.numel() + query.numel() * layer.num_maps)
        return scores

    layer.core.scores = watched  # type: ignore[method-assign]
    inputs = torch.randn(3, 4, 6, dtype=torch.float64)
    layer(inputs, inputs, inputs, need_weights=False)
    # One query of one sample needs 4 maps of 4 scores, and 4 copies of its 4 channels: 32.
    assert sizes == [32] * 12


def test_maps_of_a_block_are_not_kept_for_the_backward_pass() -> None:
    layer = _drawn(DenseCore)
    inputs = torch.randn(2, 32, 6, dtype=torch.float64)
    kept: dict[int, int] = {}

    def largest_kept(max_entries: int) -> int:
        layer.max_entries = max_entries
        kept.clear()

        def pack(tensor: Tensor) -> Tensor:
            kept[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(inputs, inputs, inputs, need_weights=False)
        return max(kept.values())

    assert largest_kept(2**20) == 2 * 4 * 32 * 32  # all maps of both samples
    assert largest_kept(4 * (32 + 4) * 8) <= 2 * 32 * 6  # nothing above the inputs


def test_dropout_is_for_training_only() -> None:
    layer = _drawn(DenseCore, dropout=0.5)
    inputs = torch.randn(2, 8, 6, dtype=torch.float64)
    maps = layer(inputs, inputs, inputs, average_attn_weights=False)[1]
    assert (maps == 0).any()
    layer.eval()
    torch.testing.assert_close(
        layer(inputs, inputs, inputs)[0], _naive(layer, inputs, inputs, None)
    )


@pytest.mark.parametrize(
    ("features", "heads", "size", "multi_head", "tunable"),
    [
        (512, 8, 64, 1_048_576, 1_310_720),
        (256, 8, 32, 262_144, 327_680),
        (1024, 16, 64, 4_194_304, 5_242_880),
    ],
)
def test_parameters_are_those_of_the_specification(
    features: int, heads: int, size: int, multi_head: int, tunable: int
) -> None:
    with torch.device("meta"):
        layer = TunableAttention.from_sizes(features, DenseCore.of_heads(heads, size), bias=False)
    channels = heads * size
    assert layer.num_parameters == 4 * features * channels + channels**2 == tunable
    assert layer.num_parameters - channels**2 == multi_head


def test_the_scale_is_that_of_all_channels_unless_given() -> None:
    layer = _drawn(DenseCore)
    assert layer.scale == 0.5
    assert TunableAttention.from_multihead(_dense()).scale == pytest.approx(1 / math.sqrt(3))
    assert layer.extra_repr() == "num_maps=4, batch_first=True, scale=0.5"


def test_projections_can_be_factorized_and_quantized() -> None:
    svd = FORMATS["svd"]
    parts = {
        name: FactorizedLinear.from_dense(linear, svd, (4,))
        for name, linear in fresh_projections(6, 4).items()
    }
    layer = TunableAttention(parts, DenseCore.of_heads(2, 2), options=BATCH_FIRST)
    layer.quantize(8)
    assert {parts[name].cores.bits for name in parts} == {8}
    assert layer(*[torch.randn(2, 5, 6)] * 3)[0].shape == (2, 5, 6)


@pytest.mark.parametrize("form", [*FORMS, IdentityCore])
def test_its_diagram_computes_the_same(form: type[CoreMatrix]) -> None:
    layer = _drawn(form)
    drawn = to_module(layer.diagram(num_queries=5, num_keys=3), dict(layer.named_parameters()))
    query, key = torch.randn(5, 6).double(), torch.randn(3, 6).double()
    torch.testing.assert_close(drawn(query, key, key), layer(query, key, key)[0])


def test_state_and_copies() -> None:
    layer = _drawn(SkipLeftCore)
    twin = copy.deepcopy(layer)
    for parameter in twin.parameters():
        nn.init.zeros_(parameter)
    twin.load_state_dict(layer.state_dict())
    inputs = torch.randn(2, 5, 6, dtype=torch.float64)
    assert torch.equal(twin(inputs, inputs, inputs)[0], layer(inputs, inputs, inputs)[0])


@pytest.mark.slow
@pytest.mark.parametrize("max_entries", [2**24, 100])
@torch.no_grad()  # type checks of the test run break graphs, and then gradients warn
def test_it_exports_and_compiles(max_entries: int) -> None:
    torch.compiler.reset()  # else sizes that changed since other tests are no integers
    layer = _drawn(DenseCore).eval()
    layer.max_entries = max_entries
    inputs = torch.randn(2, 5, 6, dtype=torch.float64)
    wanted = layer(inputs, inputs, inputs)
    exported = torch.export.export(layer, (inputs, inputs, inputs)).module()
    torch.testing.assert_close(exported(inputs, inputs, inputs), wanted)
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(compiled(inputs, inputs, inputs), wanted)


def test_returning_more_maps_than_allowed_is_refused() -> None:
    layer = _drawn(DenseCore)
    layer.max_entries = 199
    inputs = torch.randn(2, 5, 6, dtype=torch.float64)
    with pytest.raises(TooLargeError, match=r"every map needs 200 entries, over .* of 199"):
        layer(inputs, inputs, inputs, average_attn_weights=False)


def test_a_core_of_another_size_is_refused() -> None:
    layer = TunableAttention(fresh_projections(6, 5), DenseCore.of_heads(2, 2), options=BATCH_FIRST)
    with pytest.raises(LayerError, match="core has 4 channels, but the projected queries have 5"):
        layer(*[torch.zeros(2, 3, 6)] * 3)


def _drawn_core(form: type[CoreMatrix], num_heads: int, head_size: int, seed: int) -> CoreMatrix:
    draw = torch.Generator().manual_seed(seed)
    core = form.of_heads(num_heads, head_size).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    return core


@settings(deadline=None, max_examples=60)
@given(
    form=st.sampled_from([*FORMS, IdentityCore]),
    num_heads=st.integers(1, 3),
    head_size=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_scores_of_every_form_are_those_of_its_matrix(
    form: type[CoreMatrix], num_heads: int, head_size: int, seed: int
) -> None:
    if form is IdentityCore:
        num_heads, head_size = num_heads * head_size, 1
    core = _drawn_core(form, num_heads, head_size, seed)
    draw = torch.Generator().manual_seed(seed + 1)
    channels = num_heads * head_size
    query = torch.randn(2, 4, channels, generator=draw, dtype=torch.float64)
    key = torch.randn(2, 5, channels, generator=draw, dtype=torch.float64)
    scores = core.scores(query, key)
    wanted = torch.einsum("tr,bnr,bmr->btnm", core.matrix(), query, key)
    assert core.num_channels == channels
    assert scores.shape == (2, core.num_maps, 4, 5)
    # Channels share a map with their neighbours where a form has fewer maps than channels.
    torch.testing.assert_close(scores.repeat_interleave(channels // core.num_maps, 1), wanted)


@pytest.mark.parametrize("form", FORMS)
def test_the_core_of_heads_joins_the_channels_of_each_head(form: type[CoreMatrix]) -> None:
    matrix = form.of_heads(3, 2).matrix()
    heads = torch.arange(6) // 2
    assert torch.equal(matrix, (heads[:, None] == heads).float())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("num_heads", "head_size"), [(1, 5), (3, 2), (8, 4)])
def test_the_stable_rank_is_the_number_of_heads(
    form: type[CoreMatrix], num_heads: int, head_size: int
) -> None:
    assert form.of_heads(num_heads, head_size).stable_rank() == pytest.approx(num_heads)


def test_the_stable_rank_of_a_diagonal_is_known() -> None:
    core = DenseCore(torch.diag(torch.tensor([3.0, 2.0, 1.0])))
    assert core.stable_rank() == pytest.approx((9 + 4 + 1) / 9)


@pytest.mark.parametrize(
    ("form", "count"),
    [(DenseCore, 36), (LowRankCore, 2 * 6 * 3), (SkipLeftCore, 2 * 2), (SkipRightCore, 3 * 3)],
)
def test_each_form_has_the_parameters_of_its_table(form: type[CoreMatrix], count: int) -> None:
    assert sum(parameter.numel() for parameter in form.of_heads(3, 2).parameters()) == count


def test_each_form_prints_its_sizes() -> None:
    shown = [repr(form.of_heads(3, 2)) for form in FORMS]
    assert shown == [
        "DenseCore(num_channels=6)",
        "LowRankCore(num_channels=6, matrix_rank=3)",
        "SkipLeftCore(num_heads=3, head_size=2)",
        "SkipRightCore(num_heads=3, head_size=2)",
    ]
    assert repr(IdentityCore(6)) == "IdentityCore(num_channels=6)"


def test_the_identity_follows_the_precision_of_its_layer() -> None:
    core = IdentityCore(3).double()
    assert torch.equal(core.matrix(), torch.eye(3, dtype=torch.float64))
    assert not core.state_dict()


def test_heads_of_more_than_one_feature_are_no_identity() -> None:
    with pytest.raises(LayerError, match="contains no attention with 3 heads of size 2"):
        IdentityCore.of_heads(3, 2)


def test_parameters_of_other_shapes_are_refused() -> None:
    with pytest.raises(LayerError, match=r"square matrix, got shape \(2, 3\)"):
        DenseCore(torch.zeros(2, 3))
    with pytest.raises(LayerError, match=r"S x R, got shapes \(2, 3\) and \(2, 3\)"):
        LowRankCore(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(LayerError, match=r"head size, got shapes \(2,\) and \(3,\)"):
        SkipLeftCore(2, torch.zeros(2), torch.zeros(3))
    with pytest.raises(LayerError, match=r"over heads, got shape \(4,\)"):
        SkipRightCore(torch.zeros(4), 2)
