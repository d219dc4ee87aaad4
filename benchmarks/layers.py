"""Factorized layers at 10 % of the parameters, beside dense ones and tensorly-torch's.

Rows "machine" measure the constants of `rankscope.factorize.paths.MACHINE`; the row "choice" counts
how often the path that it picks is within 20 % of the fastest one. Convolutions are measured in
both memory orders, each beside the dense layer and the peer in the same order.
"""

import statistics
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import seconds, time_ratio
from rankscope.factorize.convolution import FactorizedConv2d
from rankscope.factorize.formats.catalogue import FORMATS
from rankscope.factorize.formats.format import WeightShape
from rankscope.factorize.linear import FactorizedLinear
from rankscope.factorize.paths import Path

NAME = "layers"
ORDERS = {"channels first": torch.contiguous_format, "channels last": torch.channels_last}
CONVOLUTIONS = ((64, 32, 64), (64, 32, 1), (256, 8, 64), (256, 8, 1))  # channels, size, batch
FORMAT_NAMES = ("cp", "tucker", "tensor-train", "svd")
TENSORLY = {"cp": "cp", "tucker": "tucker", "tensor-train": "tt"}
KEPT = 0.1


def run() -> Iterator[dict[str, object]]:
    torch.manual_seed(0)
    yield machine()
    for channels, size, batch in CONVOLUTIONS:
        for name in FORMAT_NAMES:
            for order in ORDERS:
                yield convolution(name, channels, size, batch, order)
    yield from (linear(batch) for batch in (1, 64))
    yield choice()


def machine() -> dict[str, object]:
    """Nanoseconds of an operation (half a multiply-add) and of a number, microseconds of a call."""
    inputs, weight = torch.randn(64, 64, 32, 32), torch.randn(64, 64, 3, 3)
    thin = torch.randn(14, 64, 1, 1)
    dense = _seconds(lambda: functional.conv2d(inputs, weight, padding=1))
    first = _seconds(lambda: functional.conv2d(inputs, thin))
    written = _seconds(lambda: inputs + 1)
    moved = _seconds(lambda: inputs.contiguous(memory_format=torch.channels_last))
    chain = _factorized(nn.Conv2d(16, 16, 3, bias=False), "tucker")
    chain.path = Path.CHAIN
    call = _seconds(_forward(chain, torch.randn(1, 16, 3, 3)), repeats=200) / 3
    places = 64 * 32 * 32
    return {
        "case": "machine",
        "operation_ns": 1e9 * dense / (2 * places * weight.numel()),
        "thin_operation_ns": 1e9 * first / (2 * places * thin.numel()),
        "number_ns": 1e9 * written / inputs.numel(),
        "moved_number_ns": 1e9 * moved / inputs.numel(),
        "call_us": 1e6 * call,
    }


def convolution(name: str, channels: int, size: int, batch: int, order: str) -> dict[str, object]:
    """One format against the dense layer and tensorly-torch's, forward and with gradients."""
    dense = nn.Conv2d(channels, channels, 3, padding=1)
    layer = _factorized(dense, name)
    inputs = torch.randn(batch, channels, size, size).contiguous(memory_format=ORDERS[order])
    dense.to(memory_format=ORDERS[order])  # type: ignore[call-overload]
    torch.testing.assert_close(layer(inputs), layer.to_dense()(inputs), rtol=1e-3, atol=1e-4)
    peer = _tensorly(dense, name)
    row: dict[str, object] = {
        "case": f"conv {channels} -> {channels} on {size}x{size}, batch {batch}",
        "order": order,
        "format": name,
        "ranks": layer.ranks,
        "kept": round(layer.cores.num_parameters / dense.weight.numel(), 4),
    }
    for what, step in (("forward", _forward), ("training", _training)):
        dense_step = step(dense, inputs)
        repeats = 15 if batch > 1 else 101
        row[what], row[f"{what}_s"] = _rounded(step(layer, inputs), dense_step, repeats)
        if peer is not None:
            row[f"{what}_over_tensorly"], _ = _rounded(
                step(layer, inputs), step(peer, inputs), repeats
            )
    return row


def linear(batch: int) -> dict[str, object]:
    """A wide matrix by singular values; tensorly-torch has no such form."""
    dense = nn.Linear(1024, 4096)
    layer = FactorizedLinear.from_dense(dense, FORMATS["svd"], (82,))
    inputs = torch.randn(batch, 1024)
    torch.testing.assert_close(layer(inputs), layer.to_dense()(inputs), rtol=1e-3, atol=1e-4)
    row: dict[str, object] = {"case": f"linear 1024 -> 4096, batch {batch}", "format": "svd"}
    for what, step in (("forward", _forward), ("training", _training)):
        row[what], row[f"{what}_s"] = _rounded(step(layer, inputs), step(dense, inputs), 101)
    return row


def choice() -> dict[str, object]:
    """How often the path chosen takes at most 1.2 times as long as the fastest."""
    num_cases, num_good, worst = 0, 0, 1.0
    for channels, size in ((16, 32), (64, 16), (128, 8)):
        dense = nn.Conv2d(channels, channels, 3, padding=1)
        for name in ("svd", "tucker", "r-tucker", "r-tensor-train"):
            for kept in (0.05, 0.3):
                layer = _factorized(dense, name, kept)
                for batch in (1, 32):
                    lost = _lost(layer, torch.randn(batch, channels, size, size))
                    num_cases, num_good = num_cases + 1, num_good + (lost <= 1.2)
                    worst = max(worst, lost)
    return {"case": "choice", "cases": num_cases, "good": num_good, "worst": round(worst, 2)}


def _lost(layer: FactorizedConv2d, inputs: Tensor) -> float:
    """Time of the chosen path over that of the fastest, in evaluation; calls take turns."""
    layer.eval()
    times: dict[Path | None, list[float]] = {None: [], Path.CHAIN: [], Path.MERGED: []}
    with torch.no_grad():
        for _ in range(9):
            for path, measured in times.items():
                layer.path = path
                measured.append(seconds(lambda: layer(inputs)))
    medians = {path: statistics.median(measured[2:]) for path, measured in times.items()}
    return medians[None] / min(medians.values())


def _factorized(dense: nn.Conv2d, name: str, kept: float = KEPT) -> FactorizedConv2d:
    shape = WeightShape.of(dense.weight)
    format = FORMATS[name]
    ranks = format.largest_ranks(shape, int(kept * shape.num_parameters))
    assert ranks is not None
    layer = FactorizedConv2d.from_dense(dense, format, ranks)
    assert isinstance(layer, FactorizedConv2d)
    return layer


def _tensorly(dense: nn.Conv2d, name: str) -> nn.Module | None:
    """Random factors: only the time counts, and decomposing takes it minutes."""
    if name not in TENSORLY:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tltorch import FactorizedConv

        peer = FactorizedConv(
            dense.in_channels,
            dense.out_channels,
            dense.kernel_size,
            order=2,
            padding=1,
            rank=KEPT,
            factorization=TENSORLY[name],
            implementation="factorized",
        )
        peer.weight.normal_(0, 0.02)
    assert isinstance(peer, nn.Module)
    return peer


def _forward(layer: nn.Module, inputs: Tensor) -> Callable[[], object]:
    def step() -> object:
        with torch.no_grad():
            return layer(inputs)

    return step


def _training(layer: nn.Module, inputs: Tensor) -> Callable[[], object]:
    given = inputs.clone().requires_grad_()

    def step() -> None:
        layer(given).sum().backward()

    return step


def _rounded(
    first: Callable[[], object], second: Callable[[], object], repeats: int
) -> tuple[float, float]:
    ratio, median = time_ratio(first, second, repeats=repeats)
    return round(ratio, 3), round(median, 6)


def _seconds(call: Callable[[], object], repeats: int = 15) -> float:
    return statistics.median([seconds(call) for _ in range(3 + repeats)][3:])
