"""Fused weights are taken apart as the layers that use them do."""

import pytest
import torch
from torch import nn

from rankscope.auditing import Configuration, Packing, Parameters, packing_of


def shape_of(heads: int, keys: int, size: int, family: str = "any") -> Configuration:
    return Configuration(
        family=family,
        depth=1,
        width=heads * size,
        heads=heads,
        head_size=size,
        key_value_heads=keys,
        feed_forward=1,
        vocabulary=None,
        embedding_rank=1,
        parameters=Parameters(),
    )


def unpack(
    name: str, tensor: torch.Tensor, configuration: Configuration | None = None
) -> dict[str, torch.Tensor]:
    packing = packing_of(name, {name: tuple(tensor.shape)}, configuration)
    assert packing is not None
    return packing.unpack(tensor)


@pytest.mark.parametrize("name", ["in_proj_weight", "attn.W_pack.weight", "attn.Wqkv.weight"])
@pytest.mark.parametrize("configuration", [None, shape_of(2, 2, 3)])
def test_thirds_are_queries_keys_and_values(name: str, configuration: Configuration | None) -> None:
    parts = [torch.randn(6, 6) for _ in range(3)]
    found = unpack(name, torch.cat(parts), configuration)
    assert list(found) == ["query", "key", "value"]
    assert all(map(torch.equal, found.values(), parts))


def test_gpt2_stores_inputs_by_outputs() -> None:
    parts = [torch.randn(6, 6) for _ in range(3)]
    fused = torch.cat([part.T for part in parts], dim=1)
    assert fused.shape == (6, 18)
    found = unpack("h.0.attn.c_attn.weight", fused, shape_of(2, 2, 3))
    assert all(map(torch.equal, found.values(), parts))


def test_neox_stores_head_by_head() -> None:
    """The reshape is the one of GPT-NeoX's own forward pass."""
    fused, inputs = torch.randn(18, 6), torch.randn(6)
    query, key, value = (fused @ inputs).view(2, 3, 3).unbind(1)
    found = unpack("attention.query_key_value.weight", fused, shape_of(2, 2, 3))
    for name, expected in (("query", query), ("key", key), ("value", value)):
        torch.testing.assert_close(found[name] @ inputs, expected.flatten())


def test_internlm_stores_group_by_group() -> None:
    """Rows are numbered group, then two queries, a key and a value, then places in a head."""
    rows = torch.arange(2 * 4 * 3.0)[:, None].expand(-1, 12)
    numbered = rows.view(2, 4, 3, 12)
    found = unpack("attention.wqkv.weight", rows, shape_of(4, 2, 3))
    assert torch.equal(found["query"], numbered[:, :2].flatten(0, 2))
    assert torch.equal(found["key"], numbered[:, 2].flatten(0, 1))
    assert torch.equal(found["value"], numbered[:, 3].flatten(0, 1))


@pytest.mark.parametrize(
    ("name", "family"),
    [("self_attn.qkv_proj.weight", "phi3"), ("attn.query_key_value.weight", "chatglm")],
)
def test_fewer_keys_than_queries_may_stand_in_order(name: str, family: str) -> None:
    parts = [torch.randn(rows, 12) for rows in (12, 6, 6)]
    found = unpack(name, torch.cat(parts), shape_of(4, 2, 3, family))
    assert all(map(torch.equal, found.values(), parts))


def test_gate_and_up_are_halves() -> None:
    found = unpack("mlp.gate_up_proj.weight", torch.arange(8.0).reshape(4, 2))
    assert found["up"].tolist() == [[4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("layer", "gates"),
    [
        (nn.LSTM(5, 3, 2, bidirectional=True), ["input", "forget", "cell", "output"]),
        (nn.LSTM(5, 3, proj_size=2), ["input", "forget", "cell", "output"]),
        (nn.GRU(5, 3, 2), ["reset", "update", "new"]),
        (nn.GRUCell(5, 3), ["reset", "update", "new"]),
    ],
)
def test_gates_are_told_by_the_recurrent_weight(layer: nn.Module, gates: list[str]) -> None:
    state = {f"rnn.{name}": weight for name, weight in layer.state_dict().items()}
    shapes = {name: tuple(weight.shape) for name, weight in state.items()}
    for name, weight in state.items():
        packing = packing_of(name, shapes, None)
        if "_ih" in name or "_hh" in name:
            if weight.ndim == 2:
                assert packing is not None
                found = packing.unpack(weight)
                assert list(found) == [f"{gate} gate" for gate in gates]
                assert torch.equal(torch.cat(list(found.values())), weight)
        else:
            assert packing is None


def test_a_recurrent_layer_without_gates_is_one_matrix() -> None:
    shapes = {name: tuple(w.shape) for name, w in nn.RNN(5, 3).state_dict().items()}
    assert packing_of("weight_ih_l0", shapes, None) is None
    assert packing_of("weight_hh_l0", shapes, None) is None


@pytest.mark.parametrize(
    ("name", "shape", "configuration"),
    [
        ("attention.query_key_value.weight", (18, 6), None),
        ("attn.c_attn.weight", (7, 6), None),
        ("in_proj_weight", (18,), None),
        ("mlp.gate_up_proj.weight", (3, 6), None),
        ("weight_ih_l0", (12, 5), None),
        ("attn.qkv_proj.weight", (24, 12), shape_of(3, 3, 4)),
    ],
)
def test_what_cannot_be_told_stays_one_matrix(
    name: str, shape: tuple[int, ...], configuration: Configuration | None
) -> None:
    assert packing_of(name, {name: shape}, configuration) is None


def test_packings_with_equal_parts_are_equal() -> None:
    assert Packing((("gate", 1),)) == Packing((("gate", 1),))
