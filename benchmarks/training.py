"""Training steps of the experiments' networks against a plain matrix product of their sizes.

The operations of a step (forward and backward) are counted by torch; the product has the number of
rows that a layer sees and the width of its widest layer, and the same number of operations as the
step, so that the ratio of their processor times is the share of the machine's float32 rate that the
step reaches. Wanted: half for convolutions, a third for transformers. The share of its own products
says why it is less: what torch's float32 products of the very sizes of its layers take by
themselves, over the step. Above 1, convolutions and bfloat16 are faster than such products.

Before: as the experiments were first trained, with an optimizer that is not fused, the channels
first in memory, float32, and memory given back to the system when it is freed. After: as they are
trained now; products in bfloat16 only where the experiment asks for it and the processor has units
for it. Compiled, where the share is below what is wanted: how many times as fast a step is whose
forward pass and loss go through torch.compile, which the experiments do not use.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.products import products_of
from benchmarks.timing import processor_time_ratio
from rankscope.compression import FullPrecision, MixedPrecision
from rankscope.compression.training.freed_memory import keep_freed_memory
from rankscope.compression.training.recipe import Precision
from rankscope.factorize.formats.catalogue import FORMATS
from rankscope.lab.experiments.attention_forms import DEPTH, FORMS, HEAD_SIZE, HEADS, WIDTH
from rankscope.lab.experiments.image_workloads import RESNET32, compress_uniformly
from rankscope.networks.catalogue import build
from rankscope.networks.cp_networks import with_cp_layers
from rankscope.networks.degree import DegreeNetwork
from rankscope.networks.sequence import (
    LanguageModel,
    MultiHead,
    PixelInput,
    PixelModel,
    TransformerShape,
    TranslationModel,
    TunableCore,
    bits_per_dimension,
)
from rankscope.robust.networks import ResNet9

NAME = "training"
BATCH, LENGTH, SYMBOLS = 32, 64, 65
PIXELS, LEVELS = 64, 256
SENTENCES, WORDS = 64, 16
IMAGES = 128
THIRD, HALF = 1 / 3, 1 / 2
FULL, MIXED = FullPrecision(), MixedPrecision()

Loss = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]


@dataclass(frozen=True, eq=False)
class Workload:
    """A network as an experiment trains it.

    Args:
        name: of the row.
        model: to be trained.
        batch: inputs first, then targets if there are any.
        loss: of the model on the batch.
        rows: of the product to compare with: places that a layer is applied to.
        width: of its square matrix.
        wanted: share of the product's rate.
        precision: of the forward pass, as the experiment asks for it.
        order: in memory, of images and kernels.
        fused: whether the optimizer is.
        earlier: the same network as it was first computed; None if it is computed as it was.
    """

    name: str
    model: nn.Module
    batch: tuple[Tensor, ...]
    loss: Loss
    rows: int
    width: int
    wanted: float
    precision: Precision = FULL
    order: torch.memory_format = field(default=torch.contiguous_format)
    fused: bool = True
    earlier: nn.Module | None = None

    @property
    def before(self) -> "Workload":
        """The same as it was first trained."""
        return replace(
            self,
            model=self.model if self.earlier is None else self.earlier,
            precision=FULL,
            order=torch.contiguous_format,
            fused=False,
        )

    def value(self) -> Tensor:
        """The loss, in the precision of the experiment."""
        first, *others = self.batch
        if first.ndim == 4:
            first = first.contiguous(memory_format=self.order)
        with self.precision.context(first.device):
            return self.loss(self.model, (first, *others))

    def step(self, *, is_compiled: bool = False) -> Callable[[], None]:
        """One step of Adam."""
        self.model.train().to(memory_format=self.order)  # type: ignore[call-overload]
        optimizer = torch.optim.AdamW(self.model.parameters(), fused=self.fused)
        value = torch.compile(self.value) if is_compiled else self.value

        def call() -> None:
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(value())
            optimizer.step()

        return call

    def operations(self) -> int:
        """Multiply-adds of a step, each counted as two."""
        with FlopCounterMode(display=False) as counter:
            torch.autograd.backward(self.value())
        return int(counter.get_total_flops())

    def product_seconds(self) -> float:
        """What the products of a step take by themselves, each as torch's in float32."""
        products = products_of(lambda: torch.autograd.backward(self.value()))
        return sum(number * product.seconds() for product, number in products.items())


def classes(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Cross-entropy of the last index against the targets."""
    *inputs, targets = batch
    logits: Tensor = model(*inputs).float()
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def squares(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Mean square distance of the first output."""
    inputs, targets = batch
    outputs: Tensor = model(inputs)
    return (outputs[:, 0] - targets).square().mean()


def bits(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """Of pixels."""
    return bits_per_dimension(model, batch[0])


def workloads() -> Iterator[Workload]:
    """The main network of each experiment that trains."""
    yield from _languages()
    yield from _other_sequences()
    yield from _images()
    draw = torch.Generator().manual_seed(0)
    numbers = torch.rand(128, 4, generator=draw)
    degree = DegreeNetwork(num_inputs=4, width=12, degrees=(3.0, 3.0))
    batch = (numbers, numbers[:, 0])
    yield Workload("degree-budget: 2 layers of degree 3", degree, batch, squares, 128, 12, THIRD)


# The tunable core computed its maps in blocks of 2 MB, and again in the backward pass.
_EARLIER_FORMS = {**FORMS, "tunable": TunableCore(HEADS, HEAD_SIZE, max_entries=2**19)}


def _languages() -> Iterator[Workload]:
    """Characters of depth-width, embedding-bottleneck, head-bottleneck and attention-forms."""
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(SYMBOLS, (BATCH, LENGTH), generator=draw)
    for depth, width in ((2, 32), (2, 64), (8, 32), (4, 100), (1, 200)):
        shape = TransformerShape(depth, width, MultiHead(2, width // 2), LENGTH)
        yield Workload(
            f"characters: transformer {depth} x {width}",
            LanguageModel(SYMBOLS, shape),
            (tokens, tokens),
            classes,
            BATCH * LENGTH,
            width,
            THIRD,
        )
    for form in ("tunable", "cp-r-dh"):
        earlier, model = (
            LanguageModel(SYMBOLS, TransformerShape(DEPTH, WIDTH, forms[form], LENGTH))
            for forms in (_EARLIER_FORMS, FORMS)
        )
        yield Workload(
            f"characters: {form} attention {DEPTH} x {WIDTH}",
            model,
            (tokens, tokens),
            classes,
            BATCH * LENGTH,
            WIDTH,
            THIRD,
            earlier=earlier,
        )


def _other_sequences() -> Iterator[Workload]:
    draw = torch.Generator().manual_seed(0)
    shape = TransformerShape(DEPTH, WIDTH, FORMS["multi-head"], PIXELS)
    images = torch.randint(LEVELS, (BATCH, PIXELS, 3), generator=draw)
    pixel_model = PixelModel(LEVELS, shape, PixelInput.TABLES)
    name = f"pixels: transformer {DEPTH} x {WIDTH}"
    yield Workload(name, pixel_model, (images,), bits, BATCH * PIXELS, WIDTH, THIRD)
    vocabulary = 3000  # about as many words as occur five times in Multi30k
    words = torch.randint(vocabulary, (SENTENCES, WORDS), generator=draw)
    translation = TranslationModel(vocabulary, vocabulary, shape)
    name = f"translation: transformer {DEPTH} x {WIDTH}"
    batch = (words, words, words)
    yield Workload(name, translation, batch, classes, SENTENCES * WORDS, WIDTH, THIRD)


def _images() -> Iterator[Workload]:
    """The long rows on CIFAR-10."""
    draw = torch.Generator().manual_seed(0)
    batch = (
        torch.rand(IMAGES, 3, 32, 32, generator=draw),
        torch.randint(10, (IMAGES,), generator=draw),
    )
    rows = IMAGES * 16 * 16
    resnet = 9 * 32  # three stages of 16, 32 and 64 channels with 9 places of a kernel each
    networks: dict[str, tuple[nn.Module, int]] = {
        "cifar10-compression: ResNet-32, dense": (build("resnet32"), resnet),
        **{
            f"cifar10-compression: ResNet-32, {name} at 10 %": (
                compress_uniformly(RESNET32, build("resnet32"), FORMATS[name], 0.1),
                resnet,
            )
            for name in ("svd", "tucker", "tensor-train", "r-tensor-train")
        },
        "label-noise-cifar10: ResNet-20, CP layers": (
            with_cp_layers(build("resnet20"), seed=0),
            resnet,
        ),
        "lipschitz-cifar10-longer: ResNet-9 of width 32": (
            ResNet9(width=32),
            9 * 64,
        ),
    }
    for name, (model, width) in networks.items():
        yield Workload(
            name,
            model,
            batch,
            classes,
            rows,
            width,
            HALF,
            precision=MIXED,
            order=torch.channels_last,
        )


def run() -> Iterator[dict[str, object]]:
    """A row for each network: all of them before, then all of them after."""
    torch.manual_seed(0)
    works = list(workloads())
    earlier = [_seconds(work.before.step()) for work in works]
    keep_freed_memory()  # for the rest of the process
    for work, before in zip(works, earlier, strict=True):
        step, samples = work.step(), len(work.batch[0])
        operations = work.operations()
        share, after = _share(work, step, operations)
        yield {
            "case": work.name,
            "operations": operations,
            "samples per second before": round(samples / before),
            "samples per second after": round(samples / after),
            "after over before": round(before / after, 2),
            "share of the product's rate": round(share, 3),
            "wanted": round(work.wanted, 3),
            "own products over step": round(work.product_seconds() / after, 2),
            "compiled": round(_gain(work, step), 2) if share < work.wanted else None,
        }


def _gain(work: Workload, step: Callable[[], None]) -> float:
    """How many times as fast a step is when it is compiled; the losses agree."""
    torch.compiler.reset()  # its limit of variants is for all networks together
    compiled = torch.compile(work.value)
    torch.testing.assert_close(compiled(), work.value(), rtol=1e-2, atol=1e-2)
    faster = work.step(is_compiled=True)
    for _ in range(3):  # which may still compile
        faster()
    return processor_time_ratio(step, faster, repeats=5)[0]


def _seconds(call: Callable[[], None]) -> float:
    return processor_time_ratio(call, call, repeats=3)[1]


def _share(work: Workload, step: Callable[[], None], operations: int) -> tuple[float, float]:
    """The share of the product's rate, and the seconds of a step."""
    matrix, vectors = torch.randn(work.width, work.width), torch.randn(work.rows, work.width)
    of_product = 2 * work.rows * work.width**2
    repeats = max(1, math.ceil(operations / of_product))

    def product() -> None:
        for _ in range(repeats):
            vectors @ matrix

    slower, seconds = processor_time_ratio(step, product, repeats=5)
    return operations / (repeats * of_product) / slower, seconds
