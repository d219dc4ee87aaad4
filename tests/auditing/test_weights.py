"""Rows of whole models."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rankscope.auditing import (
    Configuration,
    Parameters,
    StateDict,
    TensorRow,
    WeightOptions,
    audit_weights,
    geometries,
    open_model,
)
from rankscope.errors import SizeError
from rankscope.progress import Progress

HEADS, KEYS, SIZE, WIDTH = 4, 2, 3, 10


def shape_of(*, heads: int = HEADS, keys: int = KEYS) -> Configuration:
    return Configuration(
        family="any",
        depth=1,
        width=WIDTH,
        heads=heads,
        head_size=SIZE,
        key_value_heads=keys,
        feed_forward=1,
        vocabulary=None,
        embedding_rank=1,
        parameters=Parameters(),
    )


def audited(
    state: dict[str, Tensor],
    configuration: Configuration | None = None,
    options: WeightOptions | None = None,
) -> dict[str, TensorRow]:
    source = StateDict(state, who="a test")
    rows = audit_weights(source, configuration, options or WeightOptions())
    return {row.name: row for row in rows}


def spectra(row: TensorRow) -> dict[str, tuple[float, ...]]:
    return {matrix.name: matrix.singular_values for matrix in row.matrices}


def same(found: tuple[float, ...], matrix: Tensor) -> bool:
    expected = torch.linalg.svdvals(matrix.double())[: len(found)]
    return torch.allclose(torch.tensor(found).double(), expected, rtol=1e-5, atol=1e-5)


Names = tuple[str, str, str, str]
LLAMA: Names = tuple(f"model.layers.0.self_attn.{role}_proj.weight" for role in "qkvo")  # type: ignore[assignment]
BERT: Names = (
    "encoder.layer.0.attention.self.query.weight",
    "encoder.layer.0.attention.self.key.weight",
    "encoder.layer.0.attention.self.value.weight",
    "encoder.layer.0.attention.output.dense.weight",
)
VIT: Names = (
    "vit.layer.0.attention.attention.query.weight",
    "vit.layer.0.attention.attention.key.weight",
    "vit.layer.0.attention.attention.value.weight",
    "vit.layer.0.attention.output.dense.weight",
)
T5: Names = tuple(f"encoder.block.0.layer.0.SelfAttention.{role}.weight" for role in "qkvo")  # type: ignore[assignment]


@pytest.mark.parametrize("names", [LLAMA, BERT, VIT, T5])
def test_products_of_heads_have_the_spectra_of_the_full_products(names: Names) -> None:
    query, output = torch.randn(HEADS * SIZE, WIDTH), torch.randn(WIDTH, HEADS * SIZE)
    key, value = torch.randn(2, KEYS * SIZE, WIDTH).unbind()
    rows = audited(dict(zip(names, (query, key, value, output), strict=True)), shape_of())
    for head in range(HEADS):
        own = slice(SIZE * head, SIZE * (head + 1))
        group = head // (HEADS // KEYS)
        shared = slice(SIZE * group, SIZE * (group + 1))
        found = spectra(rows[names[0]])[f"head {head}: query-key"]
        assert len(found) == SIZE
        assert same(found, query[own].T @ key[shared])
        found = spectra(rows[names[3]])[f"head {head}: output-value"]
        assert same(found, output[:, own] @ value[shared])
    assert [len(rows[name].matrices) for name in names] == [1 + HEADS, 1, 1, 1 + HEADS]


def test_gpt2_products_come_from_the_transposed_fused_weights() -> None:
    width = HEADS * SIZE
    fused, output = torch.randn(width, 3 * width), torch.randn(width, width)
    state = {"h.0.attn.c_attn.weight": fused, "h.0.attn.c_proj.weight": output}
    rows = audited(state, shape_of(keys=HEADS))
    query, key, value = fused.T.chunk(3)
    found = spectra(rows["h.0.attn.c_attn.weight"])
    assert list(found)[:4] == ["query", "key", "value", "head 0: query-key"]
    assert same(found["head 1: query-key"], query[3:6].T @ key[3:6])
    found = spectra(rows["h.0.attn.c_proj.weight"])
    assert same(found["head 1: output-value"], output.T[:, 3:6] @ value[3:6])


@pytest.mark.parametrize(
    ("change", "configuration"),
    [
        (lambda state: None, None),
        (lambda state: None, shape_of(heads=5)),
        (lambda state: None, shape_of(keys=3)),
        (lambda state: state.pop(LLAMA[1]), shape_of()),
        (lambda state: state.update({LLAMA[3]: torch.randn(WIDTH, 5)}), shape_of()),
    ],
)
def test_heads_that_cannot_be_told_have_no_products(
    change: Callable[[dict[str, Tensor]], object], configuration: Configuration | None
) -> None:
    shapes = [(HEADS * SIZE, WIDTH), (KEYS * SIZE, WIDTH), (KEYS * SIZE, WIDTH)]
    shapes.append((WIDTH, HEADS * SIZE))
    state = {name: torch.randn(shape) for name, shape in zip(LLAMA, shapes, strict=True)}
    change(state)
    assert all(len(row.matrices) == 1 for row in audited(state, configuration).values())


@pytest.mark.parametrize("broken", [torch.nan, None])
def test_a_key_without_a_spectrum_leaves_its_products_out(broken: float | None) -> None:
    state = {name: torch.randn(12, 12) for name in LLAMA}
    if broken is None:
        state[LLAMA[1]] = state[LLAMA[1]].to(torch.int8)
    else:
        state[LLAMA[1]][0, 0] = broken
    rows = audited(state, shape_of(keys=HEADS))
    assert [len(rows[name].matrices) for name in LLAMA] == [1, 0, 1, 1 + HEADS]


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.zeros(5), "a vector"),
        (torch.zeros(1, 1, 5), "a vector"),
        (torch.tensor(1.0), "a single number"),
        (torch.zeros(0, 3), "no entries: shape (0, 3)"),
        (torch.zeros(2, 3, dtype=torch.int64), "int64 entries: not real numbers with a spectrum"),
        (torch.zeros(2, 3, dtype=torch.bool), "bool entries: not real numbers with a spectrum"),
        (torch.zeros(2, 2, dtype=torch.complex64), "complex64 entries: not real numbers"),
        (torch.tensor([[1, math.nan, math.nan], [math.inf, 2, 3]]), "2 of 6 entries are NaN, 1 in"),
        (torch.tensor([[1, math.inf], [1, 1]]).bfloat16(), "0 of 4 entries are NaN, 1 infinite"),
        (torch.zeros(2, 2, 2, 2, 2, 2), "6 axes: no layer is known that has more than 5"),
    ],
)
def test_a_tensor_without_a_spectrum_has_a_reason(tensor: Tensor, reason: str) -> None:
    row = audited({"some.weight": tensor})["some.weight"]
    assert row.matrices == ()
    assert row.reason is not None
    assert row.reason.startswith(reason)
    assert row.shape == tuple(tensor.shape)


def test_a_matrix_too_large_for_the_memory_limit_says_both_numbers() -> None:
    row = audited({"weight": torch.eye(64)}, options=WeightOptions(memory_limit=2**10))["weight"]
    assert row.reason == (
        "too large: its spectrum needs about 0.0 GiB, over the memory limit of 0.0 GiB"
    )


def test_copies_are_found_and_vectors_of_ones_are_not_called_copies() -> None:
    weight = torch.randn(4, 3)
    state = {
        "a.weight": weight,
        "b.weight": weight.clone(),
        "c.weight": 2 * weight,
        "n1.weight": torch.ones(3),
        "n2.weight": torch.ones(3),
        "z1.weight": torch.zeros(2, 2),
        "z2.weight": torch.zeros(2, 2),
    }
    rows = audited(state)
    assert {name: row.same_as for name, row in rows.items() if row.same_as} == {
        "b.weight": "a.weight"
    }
    assert rows["b.weight"].matrices == rows["a.weight"].matrices


def test_copies_that_are_fused_differently_are_each_seen_in_their_own_way() -> None:
    weight = torch.randn(18, 6)
    rows = audited({"in_proj_weight": weight, "plain.weight": weight.clone()})
    assert rows["plain.weight"].same_as == "in_proj_weight"
    assert list(spectra(rows["plain.weight"])) == [""]
    assert list(spectra(rows["in_proj_weight"])) == ["query", "key", "value"]


def test_tied_names_have_rows_of_their_own() -> None:
    model = nn.ModuleDict({"wte": nn.Embedding(7, 4), "lm_head": nn.Linear(4, 7, bias=False)})
    model["lm_head"].weight = model["wte"].weight
    source = open_model(model).tensors
    assert source is not None
    first, second = audit_weights(source, None)
    assert (first.name, first.part, first.same_as) == ("wte.weight", "embedding", None)
    assert (second.name, second.part, second.same_as) == ("lm_head.weight", "head", "wte.weight")
    assert first.matrices == second.matrices


def test_a_convolution_is_seen_flat_and_as_an_operator() -> None:
    row = audited({"conv1.weight": torch.randn(4, 3, 3, 3)})["conv1.weight"]
    assert [(m.name, m.shape) for m in row.matrices] == [
        ("", (4, 27)),
        ("operator on 32 x 32, stride 1", (4, 3)),
    ]


def test_a_kernel_with_one_channel_is_seen_both_as_gray_and_as_depthwise() -> None:
    options = WeightOptions(image_side=6)
    row = audited({"conv.weight": torch.randn(4, 1, 3)}, options=options)["conv.weight"]
    assert [m.name for m in row.matrices][1:] == [
        "operator on 6, stride 1",
        "operator on 6, stride 1, 4 groups",
    ]


def test_images_without_a_side_are_refused() -> None:
    with pytest.raises(SizeError, match="at least 1, got 0"):
        WeightOptions(image_side=0)


def test_a_module_tells_its_geometry() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3, stride=2, groups=4))
    options = WeightOptions(image_side=8, geometries=geometries(model))
    row = audited(model.state_dict(), options=options)["0.weight"]
    assert [m.name for m in row.matrices][1:] == ["operator on 8 x 8, stride 2, 4 groups"]


@pytest.mark.parametrize(
    ("name", "shape", "seen"),
    [
        ("embeddings.patch_embeddings.projection.weight", (6, 3, 4, 4), [("", (6, 48))]),
        ("pos_embed", (1, 5, 6), [("", (5, 6))]),
        ("downsample.0.weight", (6, 4, 1, 1), [("", (6, 4))]),
        ("layers.0.attn.q_proj.weight", (6, 2, 3), [("", (6, 6))]),
        ("experts.down_proj", (2, 3, 4), [("expert 0", (3, 4)), ("expert 1", (3, 4))]),
    ],
)
def test_other_tensors_of_high_order_are_matrices_only(
    name: str, shape: tuple[int, ...], seen: list[tuple[str, tuple[int, int]]]
) -> None:
    row = audited({name: torch.randn(shape)})[name]
    assert [(m.name, m.shape) for m in row.matrices] == seen


def test_every_tensor_has_matrices_or_a_reason_and_nothing_is_changed() -> None:
    model = nn.Sequential(
        nn.TransformerEncoderLayer(8, 2, 16), nn.LSTM(8, 4), nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)
    )
    before = copy.deepcopy(model.state_dict())
    seen: list[Progress] = []
    source = open_model(model).tensors
    assert source is not None
    rows = audit_weights(source, None, report=seen.append)
    assert [row.name for row in rows] == list(before)
    assert all(bool(row.matrices) != bool(row.reason) for row in rows)
    assert seen[-1] == Progress("tensors", len(rows), len(rows))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_the_number_of_threads_is_given_back_even_after_a_failure() -> None:
    class Broken(StateDict):
        def read(self, name: str) -> Tensor:
            raise OSError(f"{name} read with {torch.get_num_threads()} thread")

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(OSError, match="a read with 1 thread"):
            audit_weights(Broken({"a": torch.eye(2)}, who="a test"), None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_tensor_is_read_when_its_turn_comes() -> None:
    state = {"a.weight": torch.randn(3, 2), "b.bias": torch.zeros(2), "c.weight": torch.eye(2)}
    read: list[str] = []

    class Counted(StateDict):
        def read(self, name: str) -> Tensor:
            read.append(name)
            return super().read(name)

    audit_weights(Counted(state, who="a test"), None)
    assert read == ["a.weight", "b.bias", "c.weight"]
