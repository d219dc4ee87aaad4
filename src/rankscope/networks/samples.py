"""Samples that a model is measured on, from a data set, a folder or a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from rankscope.errors import RequestError, printable
from rankscope.files import is_file, is_folder
from rankscope.networks.batches import Normalization
from rankscope.networks.datasets import load_data_set
from rankscope.networks.weight_files import read_weights
from rankscope.tensor_files.opening import open_tensors

NUM_SAMPLES, BATCH_SIZE = 512, 64  # of calibration data
DATA_SETS = ("digits", "mnist", "fashion-mnist", "cifar10")
_LABELLED = ("inputs", "labels")


@dataclass(frozen=True, eq=False)
class LabelledSamples:
    """Samples with their classes.

    Args:
        inputs: (samples, …).
        labels: (samples,).
        normalize: what networks trained on the data set get inputs through; None for nothing.
    """

    inputs: Tensor
    labels: Tensor
    normalize: Normalization | None = None


def read_labelled(
    data: str,
    *,
    data_set: str | None,
    count: int | None = None,
    part: Literal["train", "test"] = "test",
) -> LabelledSamples:
    """The first samples of a data set, as pixels in 0..1, or those of a file in its own floats.

    Args:
        data: the name of a data set; a folder that holds the one that belongs to the model; or a
            `.safetensors` or `.npz` file with `inputs` and `labels`.
        data_set: that belongs to the model, by name; None if there is none.
        count: how many at most; None for all.
        part: of a data set; a file has only one.

    Raises:
        RequestError: if it is none of these, or the file does not hold both.
        DataError: if a data set is not there.
        ModelFileError: if a file cannot be read.
    """
    path = Path(data)
    if is_file(path):
        return _from_file(path, count)
    folder = path if is_folder(path) else None
    name = data if folder is None else data_set
    if name not in DATA_SETS:
        raise RequestError(
            f"--data takes a data set ({', '.join(DATA_SETS)}), a folder with the data set of a "
            f"built-in network, or a file of inputs and labels; got {data!r}."
        )
    whole = load_data_set(name, folder)
    samples = whole.train if part == "train" else whole.test
    samples = samples if count is None else samples.head(count)
    if samples.targets is None:
        raise RequestError(f"--data: {name} has no labels.")
    is_bytes = not samples.inputs.is_floating_point()
    inputs = samples.inputs.float() / 255 if is_bytes else samples.inputs
    return LabelledSamples(inputs, samples.targets, samples.normalize)


def _from_file(path: Path, count: int | None) -> LabelledSamples:
    tensors = read_weights(path)
    if set(tensors) != set(_LABELLED) or tensors["labels"].is_floating_point():
        holds = ", ".join(f"{printable(name)} ({tensor.dtype})" for name, tensor in tensors.items())
        raise RequestError(
            f"--data: {str(path)!r} must hold 'inputs' and integer 'labels', got {holds}."
        )
    inputs, labels = (tensors[name][:count] for name in _LABELLED)
    inputs = inputs if inputs.is_floating_point() else inputs.to(torch.get_default_dtype())
    return LabelledSamples(inputs, labels.long())


def read_calibration(data: str, *, data_set: str | None) -> list[Tensor | dict[str, Tensor]]:
    """The first samples of a data set or a file, in batches.

    Args:
        data: the name of a data set; a folder that holds the one that belongs to the model; or a
            `.safetensors` or `.npz` file with the inputs, one sample after the other along their
            first position: one tensor, or several named as the model names them. Labels, which
            `evaluate` and `certify` take from the same file, are set aside.
        data_set: that belongs to the model, by name; None if there is none.

    Raises:
        RequestError: if it is none of these.
        DataError: if a data set is not there.
        ModelFileError: if a file cannot be read.
    """
    path = Path(data)
    if is_file(path):
        tensors = read_weights(path)
        return _batches({name: x for name, x in tensors.items() if name != "labels"} or tensors)
    if data not in DATA_SETS and not is_folder(path):
        raise RequestError(
            f"--data takes a data set ({', '.join(DATA_SETS)}), a folder or a file; "
            f"{data!r} is none of them."
        )
    folder = path if is_folder(path) else None
    name = data if folder is None else data_set
    if name is None:
        raise RequestError(
            f"--data: which inputs the model takes from the folder {data!r} is not known, only for "
            "built-in networks of images; give a .safetensors or .npz file with inputs."
        )
    samples = load_data_set(name, folder).train.head(NUM_SAMPLES)
    return [batch.inputs for batch in samples.batches(BATCH_SIZE)]


def _batches(tensors: dict[str, Tensor]) -> list[Tensor | dict[str, Tensor]]:
    counts = {name: len(tensor) if tensor.ndim else 0 for name, tensor in tensors.items()}
    if len(set(counts.values())) != 1 or not all(counts.values()):
        raise RequestError(
            f"--data: wanted tensors with the same number of samples, at least 1, got {counts}."
        )
    count = min(*counts.values(), NUM_SAMPLES)
    cut = {name: torch.split(tensor[:count], BATCH_SIZE) for name, tensor in tensors.items()}
    rows = [dict(zip(cut, parts, strict=True)) for parts in zip(*cut.values(), strict=True)]
    return [next(iter(row.values())) if len(row) == 1 else row for row in rows]


def read_tensor(path: Path) -> Tensor:
    """The one tensor (count, positions, …) in a file, such as .npy, .pt or .safetensors.

    Nothing that may be in the file is run.

    Raises:
        RequestError: if the file does not hold exactly one tensor with at least two axes.
        ModelFileError: if the file cannot be read.
    """
    source = open_tensors(path, may_be_bare=True)
    shapes = [entry.shape for entry in source.entries]
    if len(shapes) != 1 or len(shapes[0]) < 2:
        got = f"one of shape {shapes[0]}" if len(shapes) == 1 else f"{len(shapes)} tensors"
        raise RequestError(f"{path} must hold one tensor (count, positions, …), got {got}.")
    tensor: Tensor = source.read(source.entries[0].name).clone()
    return tensor
