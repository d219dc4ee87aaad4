"""Split two trained models in two: ResNet-20 on real images, a small Llama on real text.

Usage: python -m examples.split_trained_models FOLDER [FOLDER …] [--out FOLDER] [--seed 0]
    [--image-class cat]

The data is looked for in all folders given, or else in those of the variable RANKSCOPE_DATA.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from rich.console import Console
from rich.progress import Progress, TaskID
from torch import Tensor, nn

from examples import resnet20, stories260k
from examples.split_report import Row, draw, table, write_rows
from rankscope.progress import Report, ignore
from rankscope.rank.epsilon import Frobenius, Matrix, epsilon_rank
from rankscope.rank.numeric import FunctionOptions, separation_rank
from rankscope.rank.partition import Partition

NAME = "split_trained_models"
SAMPLES = 96  # left halves, and as many right halves
TOKENS = 16
BATCH = 64  # pairs at once: small enough for the cache
FILES = {
    "cifar-10-batches-bin/test_batch.bin": "www.cs.toronto.edu/~kriz/cifar.html, binary version",
    "resnet_cifar10/resnet20.safetensors": "github.com/akamaster/pytorch_resnet_cifar10, converted",
    "stories260k/stories260K.bin": "huggingface.co/karpathy/tinyllamas, stories260K",
    "stories260k/tok512.bin": "huggingface.co/karpathy/tinyllamas, stories260K",
    "multi30k/test_2016_flickr.en": "github.com/multi30k/dataset, uncompressed",
}
# How the story goes that the authors publish with the model (llama2.c, test_all.py).
PUBLISHED = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high."
)


@dataclass(frozen=True, eq=False)
class SplitModel:
    """One architecture with several sets of weights, and the ways to split its inputs.

    Args:
        name: in tables and pictures.
        models: take a batch of inputs, give logits (batch, columns).
        inputs: (count, positions, …).
        column: which logit is measured.
        partitions: by name.
        checks: what was checked of the models beforehand.
    """

    name: str
    models: dict[str, nn.Module]
    inputs: Tensor
    column: int
    partitions: dict[str, Partition]
    checks: str


def image_partitions(*, seed: int) -> dict[str, Partition]:
    """Of 4 x 4 patches, counted row by row."""
    side = resnet20.PATCHES
    places = [divmod(position, side) for position in range(side**2)]
    lefts = {
        "left-right": [column < side // 2 for _, column in places],
        "top-bottom": [row < side // 2 for row, _ in places],
        "checkerboard": [(row + column) % 2 == 0 for row, column in places],
    }
    split = {
        name: Partition.of([p for p, chosen in enumerate(left) if chosen], order=side**2)
        for name, left in lefts.items()
    }
    return split | {"random": Partition.balanced_random(side**2, seed=seed)}


def text_partitions(tokens: int = TOKENS, *, seed: int) -> dict[str, Partition]:
    """Of a window of tokens."""
    return {
        "start-end": Partition.start_end(tokens),
        "interleaved": Partition.interleaved(tokens),
        "random": Partition.balanced_random(tokens, seed=seed),
    }


def with_new_halves(inputs: Tensor, partitions: dict[str, Partition]) -> Tensor:
    """Leave out inputs that share a half with an earlier one: it would repeat a row."""
    sides = [side for split in partitions.values() for side in (split.left, split.right)]
    seen: list[set[bytes]] = [set() for _ in sides]
    kept = []
    for number, each in enumerate(inputs):
        halves = [each[list(side)].numpy().tobytes() for side in sides]
        if not any(half in earlier for half, earlier in zip(halves, seen, strict=True)):
            kept.append(number)
            for half, earlier in zip(halves, seen, strict=True):
                earlier.add(half)
    return inputs[kept]


def find_files(folders: Sequence[Path]) -> dict[str, Path]:
    """Where each file is.

    Raises:
        FileNotFoundError: with all that are in no folder, and where they come from.
    """
    paths = {
        name: folder / name for name in FILES for folder in folders if (folder / name).is_file()
    }
    missing = [f"  {name}  ({FILES[name]})" for name in FILES if name not in paths]
    if missing:
        places = ", ".join(map(str, folders)) or "no folder: none was given"
        raise FileNotFoundError("\n".join([f"Looked in {places}, and did not find", *missing]))
    return paths


def resnet_split(files: dict[str, Path], *, image_class: str, seed: int) -> SplitModel:
    """The published ResNet-20 and its initialisation, on the first test images."""
    images, labels = resnet20.read_cifar10(files["cifar-10-batches-bin/test_batch.bin"])
    trained = resnet20.trained(files["resnet_cifar10/resnet20.safetensors"])
    untrained = resnet20.untrained(images[-500:], seed=seed)
    share = resnet20.accuracy(trained, images[:1000], labels[:1000])
    partitions = image_partitions(seed=seed)
    patches = with_new_halves(resnet20.to_patches(images[: 2 * SAMPLES]), partitions)
    return SplitModel(
        name="ResNet-20",
        models={
            "trained": resnet20.PatchClassifier(trained),
            "untrained": resnet20.PatchClassifier(untrained),
        },
        inputs=patches[:SAMPLES],
        column=resnet20.CLASSES.index(image_class),
        partitions=partitions,
        checks=f"ResNet-20: {share:.1%} of the first 1,000 test images classified rightly; "
        f"the logit is that of {image_class}",
    )


def stories_split(files: dict[str, Path], *, seed: int) -> SplitModel:
    """The published Llama and its initialisation, on the beginnings of image captions."""
    tokenizer = stories260k.Tokenizer.read(files["stories260k/tok512.bin"])
    trained = stories260k.trained(files["stories260k/stories260K.bin"])
    story = tokenizer.decode(stories260k.continued(trained, length=80))
    text = files["multi30k/test_2016_flickr.en"].read_text(encoding="utf-8")
    captions = [tokenizer.encode(line) for line in text.splitlines()]
    windows = torch.tensor([tokens[:TOKENS] for tokens in captions if len(tokens) >= TOKENS])
    frequent = Counter(token for tokens in captions for token in tokens).most_common(1)[0][0]
    partitions = text_partitions(seed=seed)
    return SplitModel(
        name="stories260k",
        models={
            "trained": trained,
            "untrained": stories260k.untrained(trained.llama.sizes, seed=seed),
        },
        inputs=with_new_halves(windows, partitions)[:SAMPLES],
        column=frequent,
        partitions=partitions,
        checks=f"stories260k: its story begins {'as' if story.startswith(PUBLISHED) else 'NOT as'} "
        f"published; "
        f"the logit is that of token {frequent}, {tokenizer.pieces[frequent]!r}",
    )


def measure(split_model: SplitModel, weights: str, split: str, *, report: Report = ignore) -> Row:
    """One split; the mean of the logit over the inputs themselves is taken off first.

    A constant adds at most 1 to any rank, but would hide the rest of the spectrum behind it.
    """
    model = split_model.models[weights]
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in torch.split(split_model.inputs, BATCH)])
    chosen = logits[:, split_model.column]
    mean, deviation = chosen.mean(), chosen.std(correction=0)
    cancelled = max(1.0, float(mean.abs() / deviation))  # digits lost by taking off the mean
    measured = separation_rank(
        model,
        split_model.partitions[split],
        inputs=split_model.inputs,
        options=FunctionOptions(
            output=lambda logits: logits[:, split_model.column] - mean,
            precision=cancelled * torch.finfo(chosen.dtype).eps,
            batch_size=BATCH,
            report=report,
        ),
    )
    values = measured.numeric.singular_values
    return Row(
        model=split_model.name,
        weights=weights,
        partition=split,
        samples=len(split_model.inputs),
        numeric_rank=measured.numeric.value,
        tolerance=measured.numeric.tolerance / float(values[0]),
        entropy=measured.numeric.entanglement_entropy,
        rank_within_tenth=rank_within(0.1, values),
        rank_within_hundredth=rank_within(0.01, values),
        entropy_curve=[[point.samples, point.entanglement_entropy] for point in measured.curve],
        singular_values=(values / numpy.linalg.norm(values)).tolist(),
    )


def rank_within(share: float, singular_values: Matrix) -> int:
    """The least rank within a share of the root mean square: a matter of the spectrum alone."""
    radius = share * float(numpy.linalg.norm(singular_values))
    return epsilon_rank(numpy.diag(singular_values), radius, metric=Frobenius()).upper


def measure_all(split_models: Sequence[SplitModel]) -> list[Row]:
    """Every split of every model, with bars on a terminal."""
    tasks = [
        (split_model, weights, split)
        for split_model in split_models
        for split in split_model.partitions
        for weights in split_model.models
    ]
    rows = []
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bars:
        for number, (split_model, weights, split) in enumerate(tasks, 1):
            title = f"{number} of {len(tasks)}: {split_model.name}, {weights}, {split}"
            report = _moving(bars, bars.add_task(title, total=len(split_model.inputs) ** 2))
            rows.append(measure(split_model, weights, split, report=report))
    return rows


def _moving(bars: Progress, bar: TaskID) -> Report:
    return lambda progress: bars.update(bar, completed=progress.done)


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, write JSON and picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="where the data is")
    parser.add_argument("--out", type=Path, default=Path("split-output"), help="where to write")
    parser.add_argument("--seed", type=int, default=0, help="of untrained weights, random splits")
    parser.add_argument("--image-class", choices=resnet20.CLASSES, default="cat")
    options = parser.parse_args(arguments)
    given = [Path(each) for each in os.environ.get("RANKSCOPE_DATA", "").split(os.pathsep) if each]
    try:
        files = find_files(options.folders or given)
    except FileNotFoundError as error:
        sys.exit(str(error))
    start = time.monotonic()
    split_models = [
        resnet_split(files, image_class=options.image_class, seed=options.seed),
        stories_split(files, seed=options.seed),
    ]
    print(*(split_model.checks for split_model in split_models), sep="\n")
    rows = measure_all(split_models)
    options.out.mkdir(parents=True, exist_ok=True)
    write_rows(rows, options.out / f"{NAME}.json")
    draw(rows, options.out / f"{NAME}.svg")
    print(*table(rows), sep="\n")
    print(f"{time.monotonic() - start:.0f} s; written: {options.out / NAME}.json and .svg")


if __name__ == "__main__":
    main(sys.argv[1:])
