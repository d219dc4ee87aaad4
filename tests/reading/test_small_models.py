"""Whole small models, written as people write them: read, run again, drawn without a fault."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rankscope.diagrams import collapse, module_arrays, to_module
from rankscope.diagrams.cost import cost
from rankscope.drawing import compose, lint
from rankscope.reading import from_module


class DecoderBlock(nn.Module):
    """Causal self-attention from one fused projection, then a perceptron; both residual."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.fused, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        batch, tokens, width = inputs.shape
        parts = self.fused(self.norm1(inputs)).split(width, dim=2)
        split = (batch, tokens, self.heads, width // self.heads)
        query, key, value = (part.view(split).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = mixed.transpose(1, 2).contiguous().view(batch, tokens, width)
        inputs = inputs + self.mix(mixed)
        outputs: Tensor = inputs + self.narrow(F.gelu(self.widen(self.norm2(inputs))))
        return outputs


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(50, 16)
        self.position = nn.Parameter(torch.randn(7, 16))
        self.blocks = nn.ModuleList(DecoderBlock() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 50, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        state = self.token(tokens) + self.position
        for block in self.blocks:
            state = block(state)
        logits: Tensor = self.head(self.norm(state))
        return logits


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, inputs: Tensor) -> Tensor:
        inner = F.relu(self.norm1(self.first(inputs)))
        return F.relu(inputs + self.norm2(self.second(inner)))


class ResidualNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(*(ResidualBlock(8) for _ in range(3)))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        pooled = self.pool(self.blocks(self.stem(images)))
        logits: Tensor = self.head(torch.flatten(pooled, 1))
        return logits


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.position = nn.Parameter(torch.randn(1, 4, 16))
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.position
        logits: Tensor = self.head(self.encoder(tokens).mean(1))
        return logits


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))
        self.channels = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs + self.tokens(inputs.transpose(1, 2)).transpose(1, 2)
        outputs: Tensor = inputs + self.channels(inputs)
        return outputs


class GatedPerceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(8)
        self.gate, self.up = nn.Linear(8, 16, bias=False), nn.Linear(8, 16, bias=False)
        self.down = nn.Linear(16, 8, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        normed = self.norm(inputs)
        outputs: Tensor = inputs + self.down(F.silu(self.gate(normed)) * self.up(normed))
        return outputs


MODELS: list[tuple[type[nn.Module], tuple[int, ...]]] = [
    (DecoderBlock, (2, 7, 16)),
    (LanguageModel, (2, 7)),
    (ResidualNetwork, (2, 3, 8, 8)),
    (VisionTransformer, (2, 3, 8, 8)),
    (Mixer, (2, 6, 8)),
    (GatedPerceptron, (3, 8)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "shape"), MODELS)
def test_a_small_model_is_read_run_priced_and_drawn(
    model: type[nn.Module], shape: tuple[int, ...], generator: torch.Generator
) -> None:
    torch.manual_seed(0)
    module = model().double().eval()
    inputs = torch.randn(shape, generator=generator, dtype=torch.float64)
    if model is LanguageModel:
        inputs = torch.randint(0, 50, shape, generator=generator)
    network = from_module(module, shape)
    rebuilt = to_module(network, module_arrays(module))
    with torch.no_grad():
        torch.testing.assert_close(rebuilt(inputs), module(inputs))
    assert cost(network).parameters == sum(part.numel() for part in module.parameters())
    assert lint(compose(network)) == ()


@pytest.mark.slow
@pytest.mark.parametrize(("model", "shape"), [MODELS[1], MODELS[3]])
def test_equal_blocks_are_drawn_once(model: type[nn.Module], shape: tuple[int, ...]) -> None:
    blocks = collapse(from_module(model().eval(), shape))
    assert max(block.count for block in blocks) == 3
