"""Data sets for training and testing, all behind one interface.

`digits` comes with scikit-learn; the others are read from a folder that holds them in their public
formats, as `--data` or the environment variable RANKSCOPE_DATA names it, or downloaded. Texts and
sentence pairs are in `text_data` and `translation_data`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

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
from rankscope.training.sources import RemoteFile, Source

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
        DataError: if there is no such data set, its files are not there and cannot be downloaded
            (the message says how to get them), or they are corrupt.
        MissingExtraError: if digits are asked for without scikit-learn.
    """
    if name not in _LOADERS:
        raise DataError(f"There is no data set {name!r}; choose one of {', '.join(_LOADERS)}.")
    return _LOADERS[name](folder)


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


def _mnist_like(name: str, source: Source) -> Callable[[Path | None], DataSet]:
    def load(folder: Path | None) -> DataSet:
        where = source.locate(folder)
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
    where = _CIFAR10.locate(folder)
    train = _joined([where / f"data_batch_{number}.bin" for number in range(1, 6)], PadCropFlip())
    return DataSet("cifar10", train, _joined([where / "test_batch.bin"]), num_classes=10)


def _joined(paths: list[Path], augment: Augmentation | None = None) -> TensorData:
    parts: list[tuple[Tensor, Tensor]] = [read_cifar10(path) for path in paths]
    images, labels = (torch.cat(column) for column in zip(*parts, strict=True))
    return TensorData(images, labels, augment, IMAGENET_NORMALIZATION)


def _idx_files(address: str, checksums: dict[str, str]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(f"{address}/{name}-ubyte.gz", f"md5:{checksum}")
        for name, checksum in checksums.items()
    )


_MNIST = Source(
    "MNIST/raw",
    "Get MNIST, for example from https://github.com/cvdfoundation/mnist, and put its four idx "
    "files (or .gz) there.",
    _idx_files(
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        {
            "train-images-idx3": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
)
_FASHION_MNIST = Source(
    "FashionMNIST/raw",
    "Get it from https://github.com/zalandoresearch/fashion-mnist, and put its four idx files (or "
    ".gz) there.",
    _idx_files(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        {
            "train-images-idx3": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
)
_CIFAR10_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
_CIFAR10 = Source(
    "cifar-10-batches-bin",
    "Get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html and unpack it "
    "there.",
    (
        RemoteFile(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
            tuple(f"cifar-10-batches-bin/{name}" for name in _CIFAR10_FILES),
        ),
    ),
)
_LOADERS: dict[str, Callable[[Path | None], DataSet]] = {
    "digits": _digits,
    "mnist": _mnist_like("mnist", _MNIST),
    "fashion-mnist": _mnist_like("fashion-mnist", _FASHION_MNIST),
    "cifar10": _cifar10,
}
