"""Planning of models of 25 million parameters, and a whole ResNet-32 at 10 % beside the dense one.

Peak memory is that of a fresh process that builds the model and plans, less what it held before
planning, over the size of the model. The ResNet has random weights: its speed does not depend on
them. Both networks run on one thread, channels last, in pairs.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import torch
from torch import nn

from benchmarks.timing import time_ratio
from rankscope.architectures.models.residual import ResNet
from rankscope.compression.compressing import compress
from rankscope.compression.plan import Budget
from rankscope.compression.planning import plan_compression

NAME = "compression"
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
        yield _resnet(batch)


def _resnet(batch: int) -> dict[str, object]:
    torch.manual_seed(0)
    dense = _channels_last(ResNet(32))
    found = compress(dense, keep=0.1)
    images = torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last)
    small = _channels_last(found.model)
    with torch.no_grad():
        assert small(images).shape == dense(images).shape
        ratio, median = time_ratio(lambda: small(images), lambda: dense(images), repeats=15)
    formats = sorted({row.format or "dense" for row in found.plan.rows if len(row.shape) == 4})
    return {
        "case": f"ResNet-32 at 10 %, batch {batch}",
        "kept": found.plan.kept.parameters,
        "formats": ", ".join(formats),
        "seconds": round(median, 4),
        "over_dense": round(ratio, 3),
    }


def _channels_last(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return model.eval()


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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    plan = plan_compression(model, Budget(0.2))
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(plan.dense.parameters, round(seconds, 1), after - before, size)


if __name__ == "__main__":
    _plan(sys.argv[1])
