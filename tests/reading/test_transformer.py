from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankscope.diagrams import Network, collapse, diagrams_of
from rankscope.reading import from_module

Check = Callable[..., Network]


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 12, **options)


@pytest.mark.slow
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu", nn.SiLU()], ids=str)
def test_an_encoder_layer_equals_that_of_pytorch(
    norm_first: bool, batch_first: bool, activation: Any, assert_reads: Check
) -> None:
    layer = encoder_layer(
        norm_first=norm_first, batch_first=batch_first, activation=activation, layer_norm_eps=0.1
    )
    assert_reads(layer, (3, 5, 8))


def test_a_layer_without_biases_and_without_a_batch(assert_reads: Check) -> None:
    assert_reads(encoder_layer(bias=False), (5, 8))


@pytest.mark.slow
def test_an_encoder_has_a_last_norm(assert_reads: Check) -> None:
    stack = nn.TransformerEncoder(
        encoder_layer(batch_first=True), 2, norm=nn.LayerNorm(8), enable_nested_tensor=False
    )
    network = assert_reads(stack, (3, 5, 8))
    assert network.steps[-1].name == "norm"


@pytest.mark.slow
@pytest.mark.parametrize("norm_first", [True, False])
def test_a_decoder_attends_to_a_memory(norm_first: bool, assert_reads: Check) -> None:
    layer = nn.TransformerDecoderLayer(8, 2, 12, norm_first=norm_first, batch_first=True)
    assert_reads(nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(8)), (3, 5, 8), (3, 4, 8))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_a_whole_transformer_equals_that_of_pytorch(assert_reads: Check) -> None:
    assert_reads(nn.Transformer(8, 2, 1, 1, 12), (5, 3, 8), (4, 3, 8))


class Causal(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layers = nn.TransformerEncoder(
            encoder_layer(batch_first=True), 1, enable_nested_tensor=False
        )
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.layers(x, **{"mask": mask, "is_causal": True} | self.options)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_causal_mask_reaches_every_layer(assert_reads: Check) -> None:
    assert_reads(Causal(), (2, 5, 8))


class CausalDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 12, batch_first=True)
        self.layers = nn.TransformerDecoder(layer, 1)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        masks = {
            f"{name}_mask": torch.ones(x.shape[1], size, dtype=torch.bool).triu(1)
            for name, size in (("tgt", x.shape[1]), ("memory", memory.shape[1]))
        }
        return self.layers(x, memory, **masks)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_both_masks_of_a_decoder_are_read(assert_reads: Check) -> None:
    network = assert_reads(CausalDecoder(), (2, 5, 8), (2, 4, 8))
    causal = [region.causal for diagram in diagrams_of(network) for region in diagram.regions]
    assert [pair for pair in causal if pair] == [("n", "m"), ("n", "m")]


@pytest.mark.slow
def test_twelve_layers_are_one_block_twelve_times() -> None:
    """All names differ by the number of the layer only, so that the layers can be collapsed."""
    stack = nn.TransformerEncoder(encoder_layer(batch_first=True), 12).eval()
    network = from_module(stack, (2, 5, 8))
    (block,) = collapse(network)
    assert (block.count, len(block.steps)) == (12, 8)
    assert [step.name for step in block.steps] == [
        "layers.0.self_attn.query",
        "layers.0.self_attn.key",
        "layers.0.self_attn.value",
        "layers.0.add",
        "layers.0.norm1",
        "layers.0.linear1",
        "layers.0.add_2",
        "layers.0.norm2",
    ]
