"""Orthogonal convolutions, 64 to 64 channels of 16 x 16, batch 64: over a plain circular one.

Rows "training" and "evaluation" are time ratios, in pairs; rows "norms" say how norms are kept.
"""

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.timing import time_ratio
from rankscope.experiments.orthogonal_references import REFERENCES
from rankscope.experiments.orthogonality import LayerSize, build_layer, is_installed, norm_ratios

NAME = "orthogonal"
SIZE = LayerSize()
BATCH = 64


def run() -> Iterator[dict[str, object]]:
    torch.manual_seed(0)
    inputs = torch.randn(BATCH, SIZE.channels, SIZE.image, SIZE.image)
    plain = nn.Conv2d(
        SIZE.channels, SIZE.channels, SIZE.kernel, padding=1, padding_mode="circular", bias=False
    )
    for name in ("ours", *REFERENCES, *(("AOC",) if is_installed("orthogonium") else ())):
        layer = build_layer(name, SIZE)
        for case, step in (("training", training), ("evaluation", evaluation)):
            repeats = 41 if name == "ours" else 11
            ratio, median = time_ratio(step(layer, inputs), step(plain, inputs), repeats=repeats)
            yield {
                "case": case,
                "layer": name,
                "over_plain": round(ratio, 3),
                "s": round(median, 5),
            }
    yield from norms(inputs)


def norms(inputs: Tensor) -> Iterator[dict[str, object]]:
    """Of ours in both precisions, and after a thousand steps of Adam."""
    layer = build_layer("ours", SIZE)
    for dtype in (torch.float32, torch.float64):
        ratios = norm_ratios(copy.deepcopy(layer).to(dtype), inputs.to(dtype))
        yield {"case": f"norms {dtype}", **_summary(ratios)}
    trained(layer, inputs[:4, :, :4, :4])
    yield {"case": "norms after 1000 steps", **_summary(norm_ratios(layer, inputs))}


def trained(layer: nn.Module, inputs: Tensor) -> None:
    """A thousand steps towards outputs that no norm-preserving layer has."""
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    wanted = torch.randn_like(inputs)
    for _ in range(1000):
        optimizer.zero_grad()
        (layer(inputs) - wanted).square().mean().backward()
        optimizer.step()


def training(layer: nn.Module, inputs: Tensor) -> Callable[[], object]:
    given = inputs.clone().requires_grad_()
    twin = copy.deepcopy(layer).train()
    upstream = torch.randn_like(inputs)

    def step() -> None:
        twin(given).backward(upstream)

    return step


def evaluation(layer: nn.Module, inputs: Tensor) -> Callable[[], object]:
    def step() -> object:
        with torch.no_grad():
            return layer.eval()(inputs) if layer.training else layer(inputs)

    return step


def _summary(ratios: Tensor) -> dict[str, object]:
    return {"mean_minus_1": float(ratios.mean()) - 1, "deviation": float(ratios.std())}
