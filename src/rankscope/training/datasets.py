"""Data sets for training and testing, all behind one interface.

`digits` comes with scikit-learn; the others are read from a folder that holds them in their public
formats, as `--data` or the environment variable RANKSCOPE_DATA names it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rankscope.architectures.models.published_weights import ENVIRONMENT, data_folders
from rankscope.errors import DataError, MissingExtraError
from rankscope.training.augmentation import (
    IMAGENET_NORMALIZATION,
    Augmentation,
    Normalization,
    PadCropFlip,
)
from rankscope.training.batches import TensorData
from rankscope.training.readers.cifar import read_cifar10
from rankscope.training.readers.idx import read_idx

_GREY = Normalization((0.0,), (1.0,))  # bytes to 0..1
_TRAINING_DIGITS = 1437  # of 1797


@dataclass(frozen=True, eq=False)
class DataSet:
    """Images with labels; batches of `train` are augmented where that is usual.

    Args:
        name: as the command line says it.
        train: what is trained on.
        test: what is only ever scored on.
        num_classes: labels are 0..num_classes - 1.
    """

    name: str
    train: TensorData
    test: TensorData
    num_classes: int


def load_data_set(name: str, folder: Path | None = None) -> DataSet:
    """A data set by name: digits, mnist, fashion-mnist or cifar10.

    Args:
        name: of the data set.
        folder: that holds it; None for the one that RANKSCOPE_DATA names.

    Raises:
        DataError: if there is no such data set, its files are not there (the message says how to
            get them), or they are corrupt.
        MissingExtraError: if digits are asked for without scikit-learn.
    """
    if name not in _LOADERS:
        raise DataError(f"There is no data set {name!r}; choose one of {', '.join(_LOADERS)}.")
    return _LOADERS[name](folder)


def _folder(data: Path | None, needed: str, how: str) -> Path:
    """The folder below a data folder that holds one data set."""
    folders = data_folders(data)
    for folder in folders:
        if (folder / needed).is_dir():
            return folder / needed
    where = ", ".join(str(folder) for folder in folders) or "no folder, as none was named"
    raise DataError(
        f"There is no folder {needed!r} (looked in: {where}). {how} Name the folder above it with "
        f"--data or {ENVIRONMENT}."
    )


def _digits(folder: Path | None) -> DataSet:
    del folder  # they come with scikit-learn
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError(
            what="The data set digits", package="scikit-learn", extra="dev"
        ) from error
    images, numbers = load_digits(return_X_y=True)
    # The order in which the embedded network was trained: it has never seen the last ones.
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(0))
    pixels = torch.from_numpy(images).float()[order].reshape(-1, 1, 8, 8) / 16
    labels = torch.from_numpy(numbers).long()[order]
    return DataSet(
        "digits",
        TensorData(pixels[:_TRAINING_DIGITS], labels[:_TRAINING_DIGITS]),
        TensorData(pixels[_TRAINING_DIGITS:], labels[_TRAINING_DIGITS:]),
        num_classes=10,
    )


def _mnist_like(name: str, folder_name: str, source: str) -> Callable[[Path | None], DataSet]:
    def load(folder: Path | None) -> DataSet:
        where = _folder(
            folder, f"{folder_name}/raw", f"{source}, and put its four idx files (or .gz) there."
        )
        train = _labelled(where, "train")
        return DataSet(name, train, _labelled(where, "t10k"), num_classes=10)

    return load


def _labelled(where: Path, split: str) -> TensorData:
    images = read_idx(_present(where / f"{split}-images-idx3-ubyte"))
    labels = read_idx(_present(where / f"{split}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(
            f"{where}: {split} has images of shape {tuple(images.shape)} and labels of shape "
            f"{tuple(labels.shape)}, wanted (count, rows, columns) and (count,)."
        )
    return TensorData(images[:, None], labels.long(), normalize=_GREY)


def _present(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    return path if path.is_file() else packed


def _cifar10(folder: Path | None) -> DataSet:
    where = _folder(
        folder,
        "cifar-10-batches-bin",
        "Get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it "
        "there.",
    )
    train = _joined([where / f"data_batch_{number}.bin" for number in range(1, 6)], PadCropFlip())
    return DataSet("cifar10", train, _joined([where / "test_batch.bin"]), num_classes=10)


def _joined(paths: list[Path], augment: Augmentation | None = None) -> TensorData:
    parts: list[tuple[Tensor, Tensor]] = [read_cifar10(path) for path in paths]
    images, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    return TensorData(images, labels, augment, IMAGENET_NORMALIZATION)


_LOADERS: dict[str, Callable[[Path | None], DataSet]] = {
    "digits": _digits,
    "mnist": _mnist_like(
        "mnist", "MNIST", "Get MNIST, for example from https://github.com/cvdfoundation/mnist"
    ),
    "fashion-mnist": _mnist_like(
        "fashion-mnist",
        "FashionMNIST",
        "Get it from https://github.com/zalandoresearch/fashion-mnist",
    ),
    "cifar10": _cifar10,
}
