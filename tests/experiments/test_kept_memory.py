import pytest
import torch
from torch import nn

from rankscope.experiments.sequence_models import kept_bytes
from rankscope.layers.tunable_attention import TunableAttention


def test_a_linear_layer_keeps_its_inputs_and_not_its_weights() -> None:
    layer = nn.Linear(30, 20)
    inputs = torch.ones(7, 30).exp()
    assert kept_bytes(lambda: layer(inputs)) == 7 * 30 * 4


def test_views_share_their_memory() -> None:
    weight = torch.ones(100, requires_grad=True)

    def twice() -> torch.Tensor:
        half = weight.exp()  # kept once for exp, and twice for the product
        return half.view(10, 10) * half.view(10, 10).T

    assert kept_bytes(twice) == 400


@pytest.mark.parametrize("batch", [1, 3])
def test_a_tunable_core_keeps_no_maps(batch: int) -> None:
    """16 maps of 64 x 64 would be 16 times the inputs; blocks keep inputs and outputs only."""
    dense = nn.MultiheadAttention(16, 4, batch_first=True)
    blocks, whole = (TunableAttention.from_multihead(dense) for _ in range(2))
    whole.max_entries = 2**30
    inputs = torch.randn(batch, 64, 16)

    def kept(layer: TunableAttention) -> int:
        return kept_bytes(lambda: layer(inputs, inputs, inputs, need_weights=False)[0].sum())

    entries = inputs.numel() * 4
    assert kept(whole) > batch * 16 * 64 * 64 * 4
    assert kept(blocks) < 8 * entries
