"""Bounds that count rounding beside the same bounds without: intervals, linear, Lipschitz, norms.

What is proved must lie outside of what is only computed, by little; then both are timed in pairs.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.timing import time_ratio
from rankscope.networks.image import DigitsNetwork
from rankscope.robust import OrthogonalConv2d, operator_norm, operator_spectrum
from rankscope.robust.bounds import Ball, unit_spreads
from rankscope.robust.lipschitz import LipschitzWalk, certified_radii
from rankscope.robust.methods import BoundPropagation, Intervals, LinearBounds
from rankscope.robust.networks import WideResNet
from rankscope.robust.norms import Linf
from rankscope.robust.transfer import read_transfer_functions

NAME = "rounding"
RADIUS = 0.05
SHAPE = (1, 8, 8)


def run() -> Iterator[dict[str, object]]:
    torch.manual_seed(0)
    yield propagation(Intervals(), samples=64)
    yield propagation(LinearBounds(), samples=8)
    yield lipschitz(samples=64)
    plain = nn.Conv2d(32, 32, 3, padding=1, padding_mode="circular")
    yield norm("orthogonal, 64 channels", OrthogonalConv2d(64, 64, 3, bias=False), (64, 16, 16))
    yield norm("plain, 32 channels", plain, (32, 16, 16))
    yield norm("matrix 512 x 512", nn.Linear(512, 512), (512,))


def propagation(method: BoundPropagation, *, samples: int) -> dict[str, object]:
    """Lower bounds on margins of a usual network."""
    graph, transfers = read_transfer_functions(
        DigitsNetwork().eval(), SHAPE, precise=True, reader=method.name
    )
    ball = Ball(torch.rand(samples, *SHAPE, dtype=torch.float64), RADIUS, Linf(), (0.0, 1.0))
    spreads = unit_spreads(graph, transfers, ball.norm)
    rows = torch.eye(10, dtype=torch.float64)[None]

    exact = tuple(replace(transfer, rounding=None) for transfer in transfers)

    @torch.no_grad()
    def proved() -> Tensor:
        return method.bounds(graph, transfers, ball, spreads, rows).floats

    @torch.no_grad()
    def computed() -> Tensor:
        with patch("rankscope.robust.bounds._errors", lambda *_: (None, None)):
            return method.bounds(graph, exact, ball, spreads, rows).floats

    below, plain = proved(), computed()
    assert (below <= plain + 1e-9 * plain.abs()).all()
    return row(method.name, proved, computed, float((plain - below).max() / plain.abs().max()))


def lipschitz(*, samples: int) -> dict[str, object]:
    """Which samples of a 1-Lipschitz network are certified, norms included on both sides."""
    model = WideResNet(10, 1, image=SHAPE).eval()
    inputs = torch.rand(samples, *SHAPE)
    with torch.no_grad():
        outputs = model(inputs)
    labels = outputs.argmax(dim=1)
    found = certified_radii(outputs, labels, LipschitzWalk(model, SHAPE, scale=1.0).bound)
    radius = float(found.median())

    @torch.no_grad()
    def proved() -> Tensor:
        walk = LipschitzWalk(model, SHAPE, scale=1.0)
        return (walk.margins(inputs, labels, [radius])[1] > 0).all(dim=2)[0]

    @torch.no_grad()
    def computed() -> Tensor:
        bound = LipschitzWalk(model, SHAPE, scale=1.0).bound
        return certified_radii(model(inputs), labels, bound) >= radius

    held, plain = proved(), computed()
    assert bool((plain | ~held).all())
    return row("lipschitz", proved, computed, float((plain & ~held).double().mean()))


def norm(name: str, layer: nn.Module, shape: tuple[int, ...]) -> dict[str, object]:
    """Two bounds that hold, beside singular values from LAPACK."""
    found, plain = operator_norm(layer, shape), float(operator_spectrum(layer, shape)[0])
    assert found.lower <= plain * (1 + 1e-12)
    assert plain <= found.upper
    return row(
        f"operator norm, {name}",
        lambda: operator_norm(layer, shape),
        lambda: operator_spectrum(layer, shape),
        found.upper / plain - 1,
    )


def row(
    case: str, proved: Callable[[], object], computed: Callable[[], object], apart: float
) -> dict[str, object]:
    ratio, seconds = time_ratio(proved, computed, repeats=7, warm=1)
    return {
        "case": case,
        "proved_over_computed": round(ratio, 3),
        "proved_s": round(seconds, 4),
        "apart": f"{apart:.1e}",
    }
