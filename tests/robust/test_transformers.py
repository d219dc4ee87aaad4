"""Attention, normalizations and smooth curves: certified in floats, and sound where tried."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rankscope import extras
from rankscope.robust import (
    L2,
    Ball,
    Intervals,
    LinearBounds,
    Linf,
    ProjectedDescent,
    Threat,
    certify,
    edge_points,
    propagate_intervals,
    propagate_linear_bounds,
    read_transfer_functions,
)


class Encoder(nn.Module):
    """One block of attention with GELU and layer normalization, and a classifier behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
        self.last = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.block(inputs).mean(dim=1))
        return outputs


class Gated(nn.Module):
    """Root-mean-square normalization written out, SiLU gates, powers and exponentials."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        hidden = hidden * torch.rsqrt(hidden.pow(2).mean(dim=-1, keepdim=True) + 1e-5)
        hidden = nn.functional.silu(self.gate(hidden)) * hidden
        outputs: Tensor = self.last(torch.exp(0.1 * hidden) / (2 + torch.sigmoid(hidden)))
        return outputs


MODELS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [(Encoder, (3, 8)), (Gated, (6,))]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "shape"), MODELS)
def test_every_computed_value_is_within_its_box(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    model = make().eval()
    graph, transfers = read_transfer_functions(model, shape, precise=True)
    own = read_transfer_functions(model, shape)[0]
    centres = torch.rand(3, *shape)
    with torch.no_grad():
        for radius, norm in ((0.0, Linf()), (1e-3, L2()), (0.1, Linf()), (2.0, Linf())):
            ball, threat = Ball(centres.double(), radius, norm), Threat(radius, norm, None)
            for propagate in (propagate_intervals, propagate_linear_bounds):
                boxes = propagate(graph, transfers, ball, {})
                for _ in range(4):
                    points = edge_points(centres, torch.randn(centres.shape), threat)
                    known = {own.input: points}
                    for ours, node in zip(own.nodes, graph.nodes, strict=True):
                        known[ours.output] = ours.run(*(known[v] for v in ours.inputs))
                        values, box = known[ours.output].double(), boxes[node.output]
                        is_below, is_above = values < box.lower, values > box.upper
                        assert not bool((is_below | is_above).any()), node.name


@pytest.mark.slow
@pytest.mark.parametrize(("make", "shape"), MODELS)
def test_small_balls_are_certified_and_large_ones_are_not(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    model, inputs = make().eval(), torch.rand(3, *shape)
    with torch.no_grad():
        labels = model(inputs).argmax(dim=1)
    for method in (Intervals(), LinearBounds(inner_intervals=True)):
        result = certify(
            model,
            inputs,
            labels,
            [1e-6, 10.0],
            norm=Linf(),
            method=method,
            attack=ProjectedDescent(steps=1),
            pixels=None,
        )
        assert [row.certified for row in result.radii] == [1.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit", "bert"])
def test_small_models_of_transformers_are_certified(name: str) -> None:
    transformers = extras.transformers()
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    if name == "vit":
        image = {"image_size": 8, "patch_size": 4, "num_channels": 1, "num_labels": 3}
        settings = transformers.ViTConfig(hidden_size=16, **image, **sizes)
        inner = transformers.ViTForImageClassification(settings)
    else:
        settings = transformers.BertConfig(vocab_size=20, hidden_size=16, **sizes)
        inner = transformers.BertForSequenceClassification(settings)

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, inputs: Tensor) -> Tensor:
            option = "pixel_values" if name == "vit" else "inputs_embeds"
            logits: Tensor = self.inner(**{option: inputs}).logits
            return logits

    model = Logits().eval()
    inputs = torch.rand(2, 1, 8, 8) if name == "vit" else torch.rand(2, 4, 16)
    with torch.no_grad():
        labels = model(inputs).argmax(dim=1)
    method, attack = LinearBounds(), ProjectedDescent(steps=1)
    result = certify(
        model, inputs, labels, [1e-5], norm=Linf(), method=method, attack=attack, pixels=None
    )
    assert result.radii[0].certified == 1.0
