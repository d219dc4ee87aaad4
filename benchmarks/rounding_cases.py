"""What `rounding` times, so written that it also runs in the code before rounding was counted.

As a program (`python benchmarks/rounding_cases.py` with the sources of that commit) it reads the
name of a case from each line, computes it, and answers with the seconds and the numbers, as JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rankscope.networks.image import DigitsNetwork
from rankscope.robust import OrthogonalConv2d, operator_norm
from rankscope.robust.attacks import Threat
from rankscope.robust.bounds import Ball, unit_spreads
from rankscope.robust.methods import BoundPropagation, Intervals, LinearBounds, Lipschitz, Samples
from rankscope.robust.networks import WideResNet
from rankscope.robust.norms import L2, Linf
from rankscope.robust.transfer import read_transfer_functions

Case = Callable[[], Tensor]
RADIUS = 0.05
SHAPE = (1, 8, 8)
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "operator norm, orthogonal, 64 channels": (
        lambda: OrthogonalConv2d(64, 64, 3, bias=False),
        (64, 16, 16),
    ),
    "operator norm, plain, 32 channels": (
        lambda: nn.Conv2d(32, 32, 3, padding=1, padding_mode="circular"),
        (32, 16, 16),
    ),
    "operator norm, matrix 512 x 512": (lambda: nn.Linear(512, 512), (512,)),
}


def cases(*, is_before: bool) -> dict[str, Case]:
    """Every case by its name; weights and samples are the same in every process."""
    made: dict[str, Case] = {
        "intervals": propagation(Intervals(), 64, is_before=is_before),
        "linear-bounds": propagation(LinearBounds(), 8, is_before=is_before),
        "lipschitz": lipschitz(64),
    }
    for name in LAYERS:
        made[name] = norm(*layer(name))
    return made


def propagation(method: BoundPropagation, samples: int, *, is_before: bool) -> Case:
    """Lower bounds on the outputs of a usual network."""
    torch.manual_seed(0)
    model = DigitsNetwork().eval()
    settings: dict[str, Any] = {"precise": True}
    if is_before:
        model, settings = model.double(), {"dtype": torch.float64}
    graph, transfers = read_transfer_functions(model, SHAPE, reader=method.name, **settings)
    ball = Ball(torch.rand(samples, *SHAPE, dtype=torch.float64), RADIUS, Linf(), (0.0, 1.0))
    spreads = unit_spreads(graph, transfers, ball.norm)
    rows = torch.eye(10, dtype=torch.float64)[None]

    @torch.no_grad()
    def run() -> Tensor:
        found: Any = method.bounds(graph, transfers, ball, spreads, rows)
        below: Tensor = found if is_before else found.floats
        return below

    return run


def lipschitz(samples: int) -> Case:
    """Which samples of a 1-Lipschitz network are certified."""
    torch.manual_seed(0)
    model = WideResNet(10, 1, image=SHAPE).eval()
    inputs = torch.rand(samples, *SHAPE)
    with torch.no_grad():
        outputs = model(inputs)
    labels = outputs.argmax(dim=1)
    best = outputs.topk(2, dim=1).values
    radius = float((best[:, 0] - best[:, 1]).median()) / 2**0.5
    given = Samples(inputs, labels, outputs)

    def run() -> Tensor:
        return Lipschitz().prove(model, given, [Threat(radius, L2(), None)]).holds[0].double()

    return run


def layer(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    build, shape = LAYERS[name]
    return build(), shape


def norm(module: nn.Module, shape: tuple[int, ...]) -> Case:
    return lambda: torch.tensor([operator_norm(module, shape).upper], dtype=torch.float64)


def serve() -> None:
    torch.set_num_threads(1)
    made = cases(is_before=True)
    for line in sys.stdin:
        start = time.perf_counter()
        found = made[line.strip()]()
        seconds = time.perf_counter() - start
        print(json.dumps([seconds, found.flatten().tolist()]), flush=True)


if __name__ == "__main__":
    serve()
