"""Planning of models of 25 million parameters, and a whole ResNet-32 at 10 % beside the dense one.

Peak memory is that of a fresh process that builds the model and plans, less what it held before
planning, over the size of the model. The ResNet has random weights: its speed does not depend on
them. It is planned under a tenth of the parameters, as it is and with its normalizations folded,
and then with a second budget, 45 % of the latency: half, and a margin since a plan only estimates
it. All run on one thread, in pairs, in the memory order in which the dense one is faster; "dense"
keeps its normalizations.

Freed memory is kept by the process, or goes back to the system as glibc does by default; then all
networks wait for pages, the small one as long as the dense one, and no measurement repeats well.
"""

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.peak_memory import peak_mebibytes
from benchmarks.timing import time_ratio
from rankscope.compression.compressing import compress
from rankscope.compression.folding import fold_normalizations
from rankscope.compression.plan import Budget, Unit
from rankscope.compression.planning import plan_compression
from rankscope.factorize.convolution import FactorizedConv2d
from rankscope.factorize.formats.catalogue import FORMATS
from rankscope.networks.image import ResNet

NAME = "compression"
MEMORY = {
    "kept": {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**33)},
    "returned": {},
}
# Blocks of a ResNet-50: how many, middle channels, in channels of the first.
_STAGES = ((3, 64, 64), (4, 128, 256), (6, 256, 512), (3, 512, 1024))


def run() -> Iterator[dict[str, object]]:
    for name in ("convolutional", "transformer"):
        command = [sys.executable, "-m", "benchmarks.compression", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        parameters, seconds, mebibytes, size = done.stdout.split()
        yield {
            "case": f"planning, {name}",
            "parameters": int(parameters),
            "seconds": float(seconds),
            "peak_memory_over_model": round(float(mebibytes) / float(size), 2),
        }
    for batch in (64, 1):
        for memory, environment in MEMORY.items():
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.compression", str(batch)]
            settings = {**os.environ, **environment}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=settings)
            for line in done.stdout.splitlines():
                yield {**json.loads(line), "freed memory": memory}


def resnet(batch: int) -> Iterator[dict[str, object]]:
    torch.manual_seed(0)
    images = torch.randn(batch, 3, 32, 32)
    dense, images = _faster_order(ResNet(32).eval(), images)
    folded = fold_normalizations(dense, images).model
    formats = [FORMATS[name] for name in ("svd", "cp", "tucker", "tensor-train")]
    faster = Budget(0.45, Unit.LATENCY)
    for whole, also in ((dense, None), (folded, None), (folded, faster)):
        if also is not None and batch == 1:
            continue  # at batch 1 no choice takes half of the time: it is spent on calls
        compressed = compress(whole, keep=0.1, also=also, example=images, formats=formats)
        small = compressed.model.eval()
        with torch.no_grad():
            torch.testing.assert_close(whole(images), dense(images), rtol=1e-3, atol=1e-4)
            rebuilt = _rebuilt(small)
            torch.testing.assert_close(small(images), rebuilt(images), rtol=1e-3, atol=1e-4)
        yield {
            "case": f"ResNet-32 at 10 %, batch {batch}",
            "normalizations": "folded" if whole is folded else "kept",
            "also": None if also is None else f"{also.unit}={also.keep:g}",
            "flops": round(compressed.plan.kept.flops / compressed.plan.dense.flops, 3),
            "kept": compressed.plan.kept.parameters,
            "over_dense": _ratio(small, dense, images),
            "over_folded_dense": _ratio(small, folded, images),
        }


def _rebuilt(small: nn.Module) -> nn.Module:
    """The same network with dense layers from its cores: what it must compute."""
    rebuilt = copy.deepcopy(small)
    for module in list(rebuilt.modules()):
        for name, child in module.named_children():
            if isinstance(child, FactorizedConv2d):
                setattr(module, name, child.to_dense())
    return rebuilt


def _ratio(one: nn.Module, other: nn.Module, images: Tensor) -> float:
    with torch.no_grad():
        return round(time_ratio(lambda: one(images), lambda: other(images), repeats=15)[0], 3)


def _faster_order(dense: nn.Module, images: Tensor) -> tuple[nn.Module, Tensor]:
    last = copy.deepcopy(dense)
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    turned = images.to(memory_format=torch.channels_last)
    with torch.no_grad():
        ratio, _ = time_ratio(lambda: last(turned), lambda: dense(images), repeats=9)
    return (last, turned) if ratio < 1 else (dense, images)


def convolutional() -> nn.Module:
    """Weights of the shapes of a ResNet-50."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7)]
    for count, middle, first in _STAGES:
        for block in range(count):
            inputs = first if block == 0 else 4 * middle
            layers += [nn.Conv2d(inputs, middle, 1), nn.Conv2d(middle, middle, 3, padding=1)]
            layers.append(nn.Conv2d(middle, 4 * middle, 1))
        layers.append(nn.Conv2d(first, 4 * middle, 1))
    return nn.Sequential(*layers, nn.Linear(2048, 1000))


def transformer() -> nn.Module:
    """Weights of the shapes of a small BERT."""
    layers: list[nn.Module] = [nn.Embedding(30522, 384)]
    for _ in range(7):
        layers += [nn.Linear(384, 384) for _ in range(4)]
        layers += [nn.Linear(384, 1536), nn.Linear(1536, 384)]
    return nn.Sequential(*layers)


def _plan(name: str) -> None:
    torch.set_num_threads(2)
    model = {"convolutional": convolutional, "transformer": transformer}[name]()
    size = sum(4 * parameter.numel() for parameter in model.parameters()) / 2**20
    before = peak_mebibytes()
    start = time.perf_counter()
    plan = plan_compression(model, Budget(0.2))
    seconds = time.perf_counter() - start
    print(plan.dense.parameters, round(seconds, 1), peak_mebibytes() - before, size)


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        torch.set_num_threads(1)
        for row in resnet(int(sys.argv[1])):
            print(json.dumps(row))
    else:
        _plan(sys.argv[1])
