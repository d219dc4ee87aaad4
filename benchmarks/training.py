"""Training steps of the experiments' networks against a plain matrix product of their sizes.

The operations of a step (forward and backward) are counted by torch; the product has the number of
rows that a layer sees and the width of its widest layer, and the same number of operations as the
step, so that the ratio of their processor times is the share of the machine's rate that the step
reaches. Wanted: half for convolutions, a third for transformers. Beside it, the same step with an
optimizer that is not fused, in mixed precision (bfloat16, if the processor has units for it), and
for convolutions with the channels first in memory.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import processor_time_ratio
from rankscope.compression import FullPrecision, MixedPrecision
from rankscope.compression.training.recipe import Precision
from rankscope.networks.catalogue import build
from rankscope.networks.degree import DegreeNetwork
from rankscope.networks.sequence import LanguageModel, MultiHead, TransformerShape

NAME = "training"
BATCH, LENGTH, SYMBOLS = 32, 64, 65
FULL = FullPrecision()


@dataclass(frozen=True, eq=False)
class Workload:
    """A network as an experiment trains it.

    Args:
        name: of the row.
        model: to be trained.
        inputs: of one batch.
        targets: of one batch.
        rows: of the product to compare with: places that a layer is applied to.
        width: of its square matrix.
        wanted: share of the product's rate.
        precision: of the forward pass.
    """

    name: str
    model: nn.Module
    inputs: Tensor
    targets: Tensor
    rows: int
    width: int
    wanted: float
    precision: Precision = FULL

    def loss(self) -> Tensor:
        """Cross-entropy, or squares where targets are real."""
        with self.precision.context(self.inputs.device):
            outputs: Tensor = self.model(self.inputs).float()
        if self.targets.is_floating_point():
            return (outputs[:, 0] - self.targets).square().mean()
        flat = outputs.reshape(-1, outputs.shape[-1])
        return nn.functional.cross_entropy(flat, self.targets.flatten())

    def step(self, *, fused: bool) -> Callable[[], None]:
        """One step of Adam."""
        optimizer = torch.optim.AdamW(self.model.parameters(), fused=fused)

        def call() -> None:
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(self.loss())
            optimizer.step()

        return call

    def operations(self) -> int:
        """Multiply-adds of a step, each counted as two."""
        with FlopCounterMode(display=False) as counter:
            torch.autograd.backward(self.loss())
        return int(counter.get_total_flops())


def workloads() -> Iterator[Workload]:
    """The main network of each family of experiments."""
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(SYMBOLS, (BATCH, LENGTH), generator=draw)
    for depth, width in ((2, 32), (2, 64), (8, 32), (4, 100), (1, 200)):
        shape = TransformerShape(depth, width, MultiHead(2, width // 2), LENGTH)
        model = LanguageModel(SYMBOLS, shape)
        name = f"transformer {depth} x {width}"
        yield Workload(name, model, tokens, tokens, BATCH * LENGTH, width, 1 / 3)
    images = torch.randn(128, 3, 32, 32, generator=draw)
    labels = torch.randint(10, (128,), generator=draw)
    for name, order in (
        ("ResNet-32, channels last", torch.channels_last),
        ("ResNet-32, channels first", torch.contiguous_format),
    ):
        model = build("resnet32").to(memory_format=order).train()  # type: ignore[call-overload]
        inputs = images.contiguous(memory_format=order)
        # Three stages of 16, 32 and 64 channels with 9 places of a kernel each.
        yield Workload(name, model, inputs, labels, 128 * 16 * 16, 9 * 32, 1 / 2)
    numbers = torch.rand(128, 4, generator=draw)
    degree = DegreeNetwork(num_inputs=4, width=12, degrees=(3.0, 3.0))
    yield Workload("degree network 2 x 12", degree, numbers, numbers[:, 0], 128, 12, 1 / 3)


def run() -> Iterator[dict[str, object]]:
    """A row for each network."""
    torch.manual_seed(0)
    for work in workloads():
        work.model.train()
        operations = work.operations()
        matrix, vectors = torch.randn(work.width, work.width), torch.randn(work.rows, work.width)
        repeats = max(1, math.ceil(operations / (2 * work.rows * work.width**2)))

        def product(
            matrix: Tensor = matrix, vectors: Tensor = vectors, repeats: int = repeats
        ) -> None:
            for _ in range(repeats):
                vectors @ matrix

        fused = work.step(fused=True)
        slower, _ = processor_time_ratio(fused, product, repeats=5)
        plain, _ = processor_time_ratio(work.step(fused=False), fused, repeats=5)
        mixed = replace(work, precision=MixedPrecision()).step(fused=True)
        short, _ = processor_time_ratio(mixed, fused, repeats=5)
        _, seconds = processor_time_ratio(fused, fused, repeats=3)
        done = repeats * 2 * work.rows * work.width**2
        share = operations / done / slower
        yield {
            "case": work.name,
            "operations": operations,
            "gigaflops": round(operations / seconds / 1e9, 2),
            "samples per second": round(len(work.inputs) / seconds),
            "share of the product's rate": round(share, 3),
            "wanted": round(work.wanted, 3),
            "not fused over fused": round(plain, 3),
            "mixed over full precision": round(short, 3),
        }
