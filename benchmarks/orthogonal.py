"""Orthogonal convolutions, 64 to 64 channels of 16 x 16, batch 64: over a plain circular one.

Rows are time ratios, in pairs: of forward and backward, and of forward in evaluation; two rows are
ours over orthogonium's AOC. How well norms are kept is in the experiment `orthogonality`. The last
two rows are steps of training the network of `lipschitz-cifar10` with newer parts, over its own.
"""

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.timing import time_ratio
from rankscope.lab.experiments.orthogonality import REFERENCES, LayerSize, build_layer, is_installed
from rankscope.robust import BetaAbs, BlockReflector, ResNet9

NAME = "orthogonal"
SIZE = LayerSize()
BATCH = 64


def run() -> Iterator[dict[str, object]]:
    torch.manual_seed(0)
    inputs = torch.randn(BATCH, SIZE.channels, SIZE.image, SIZE.image)
    plain = nn.Conv2d(
        SIZE.channels, SIZE.channels, SIZE.kernel, padding=1, padding_mode="circular", bias=False
    )
    others = (*REFERENCES, *(("AOC",) if is_installed("orthogonium") else ()))
    layers = {name: build_layer(name, SIZE) for name in ("ours", *others)}
    for name, layer in layers.items():
        yield from compared(name, layer, "plain", plain, inputs)
    if "AOC" in layers:
        yield from compared("ours", layers["ours"], "AOC", layers["AOC"], inputs)
    yield from networks()


def networks() -> Iterator[dict[str, object]]:
    """Steps of networks of width 8 on batches of 128 images of CIFAR-10's size."""
    images, labels = torch.rand(128, 3, 32, 32), torch.randint(10, (128,))
    newer = {
        "BetaAbs": ResNet9(width=8, activation=BetaAbs),
        "BlockReflector": ResNet9(width=8, parametrization=BlockReflector()),
    }
    usual = network_training(ResNet9(width=8), images, labels)
    for name, network in newer.items():
        step = network_training(network, images, labels)
        ratio, median = time_ratio(step, usual, repeats=41)
        yield {
            "case": "network, training",
            "layer": name,
            "over": "MaxMin, Cayley",
            "ratio": round(ratio, 3),
            "s": round(median, 5),
        }


def network_training(network: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], object]:
    optimizer = torch.optim.Adam(network.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        loss: Tensor = nn.functional.cross_entropy(network(images), labels)
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def compared(
    name: str, layer: nn.Module, other: str, against: nn.Module, inputs: Tensor
) -> Iterator[dict[str, object]]:
    for case, step in (("training", training), ("evaluation", evaluation)):
        repeats = 41 if name == "ours" else 11
        ratio, median = time_ratio(step(layer, inputs), step(against, inputs), repeats=repeats)
        yield {
            "case": case,
            "layer": name,
            "over": other,
            "ratio": round(ratio, 3),
            "s": round(median, 5),
        }


def training(layer: nn.Module, inputs: Tensor) -> Callable[[], object]:
    given = inputs.clone().requires_grad_()
    twin = copy.deepcopy(layer).train()
    upstream = torch.randn_like(inputs)

    def step() -> None:
        twin(given).backward(upstream)

    return step


def evaluation(layer: nn.Module, inputs: Tensor) -> Callable[[], object]:
    twin = copy.deepcopy(layer).eval()

    def step() -> object:
        with torch.no_grad():
            return twin(inputs)

    return step
