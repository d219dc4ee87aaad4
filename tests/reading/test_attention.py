from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankscope.diagrams import IndexKind, Network, diagrams_of
from rankscope.reading import from_module

Check = Callable[..., Network]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("shape", [(5, 3, 8), (5, 8)])
def test_self_attention_equals_that_of_pytorch(
    bias: bool, batch_first: bool, shape: tuple[int, ...], assert_reads: Check
) -> None:
    assert_reads(nn.MultiheadAttention(8, 2, bias=bias, batch_first=batch_first), shape)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [True, False])
def test_cross_attention_with_features_of_three_sizes(bias: bool, assert_reads: Check) -> None:
    layer = nn.MultiheadAttention(8, 2, bias=bias, batch_first=True, kdim=5, vdim=7)
    assert_reads(layer, (3, 4, 8), (3, 6, 5), (3, 6, 7))
    assert_reads(nn.MultiheadAttention(8, 2, bias=bias), (4, 3, 8), (6, 3, 8))


@pytest.mark.parametrize("heads", [1, 4])
def test_one_head_and_heads_of_one_feature_have_no_index_for_them(
    heads: int, assert_reads: Check
) -> None:
    network = assert_reads(nn.MultiheadAttention(4, heads, bias=False), (5, 4))
    (diagram,) = diagrams_of(network)
    kinds = [index.kind for index in diagram.indices]
    assert (IndexKind.HEAD in kinds) == (heads > 1)
    assert diagram.regions[0].scale == ("D**-0.5" if heads == 1 else None)


def test_attention_without_biases_is_one_picture_with_the_input_three_times() -> None:
    (diagram,) = diagrams_of(from_module(nn.MultiheadAttention(8, 2, bias=False), (5, 8)))
    assert [node.source for node in diagram.nodes] == [
        "query",
        "in_proj_weight",
        "query",
        "in_proj_weight",
        "query",
        "in_proj_weight",
        "out_proj.weight",
    ]
    rows = [node.rows for node in diagram.nodes if node.source == "in_proj_weight"]
    assert rows == [(0, 8), (8, 16), (16, 24)]
    (region,) = diagram.regions
    assert (region.over, region.scale) == (("m",), "D**-0.5")


def test_attention_with_biases_has_steps_for_queries_keys_and_values() -> None:
    network = from_module(nn.MultiheadAttention(8, 2), (5, 8))
    assert [(step.name, step.label) for step in network.steps] == [
        ("query2", r"\mathbf{Q}"),  # "query" is the input.
        ("key", r"\mathbf{K}"),
        ("value", r"\mathbf{V}"),
        ("linear_4", r"\mathbf{X}_{1}"),
    ]


class Masked(nn.Module):
    def __init__(self, mask: Tensor | None, **options: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, bias=False)
        self.mask, self.options = mask, options

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.attention(x, x, x, attn_mask=self.mask, **self.options)
        return out + x  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(5, 5, dtype=torch.bool).triu(1),
        nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64),
    ],
    ids=["booleans", "numbers"],
)
def test_a_causal_mask_is_recognized(mask: Tensor, assert_reads: Check) -> None:
    network = assert_reads(Masked(mask, need_weights=False), (2, 5, 8))
    causal = [region.causal for diagram in diagrams_of(network) for region in diagram.regions]
    assert causal == [("n", "m")]


@pytest.mark.slow
def test_a_mask_that_hides_nothing_is_no_mask(assert_reads: Check) -> None:
    network = assert_reads(Masked(torch.zeros(5, 5, dtype=torch.bool)), (2, 5, 8))
    causal = [region.causal for diagram in diagrams_of(network) for region in diagram.regions]
    assert causal == [None]


class Dot(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, **self.options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ({}, [(5, 3), (6, 3), (6, 2)]),
        ({"scale": 0.3}, [(2, 4, 5, 3), (2, 4, 6, 3), (2, 4, 6, 2)]),
        ({"is_causal": True}, [(2, 5, 3), (2, 4, 3), (2, 4, 3)]),
        ({"enable_gqa": True}, [(2, 6, 5, 3), (2, 2, 4, 3), (2, 2, 4, 3)]),
        ({"attn_mask": torch.ones(5, 5, dtype=torch.bool).tril()}, [(2, 5, 3)] * 3),
    ],
    ids=str,
)
def test_the_dot_product_of_pytorch_is_read(
    options: dict[str, object], shapes: list[tuple[int, ...]], assert_reads: Check
) -> None:
    assert_reads(Dot(**options), *shapes)


class Padded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.attention(x, x, x, key_padding_mask=mask)[0]  # type: ignore[no-any-return]
