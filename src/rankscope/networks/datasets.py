"""Data sets for training and testing, all behind one interface.

`digits` comes with scikit-learn; the others are read from a folder that holds them in their public
formats, as `--data` or the environment variable RANKSCOPE_DATA names it, or downloaded. Texts and
sentence pairs are in `text_data` and `translation_data`.
"""

import gzip
import math
import os
import struct
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from rankscope.errors import DataError, MissingExtraError, TrainingError
from rankscope.files import is_folder, write_atomically
from rankscope.networks.batches import (
    IMAGENET_NORMALIZATION,
    Augmentation,
    Normalization,
    PadCropFlip,
    TensorData,
)
from rankscope.networks.published_weights import ENVIRONMENT, data_folders
from rankscope.seeds import seed_of
from rankscope.tensor_files.archive import most_believed

# Where data sets come from: a folder at hand, or the address that their authors published.
#
# A data set that is in no data folder is downloaded into the first of them (without any, into the
# user's cache), if pooch is installed and RANKSCOPE_OFFLINE is not set. What does not have the
# published checksum is thrown away.


OFFLINE = "RANKSCOPE_OFFLINE"
_TIMEOUT = 30.0  # seconds without an answer


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set.

    Args:
        url: its address; its last part is the name that it gets.
        checksum: `sha256:...`, or `md5:...` where the authors published that.
        members: what is taken out of it, if it is an archive (tar); empty if it is kept as it is.
    """

    url: str
    checksum: str
    members: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file name that it is saved under."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class Source:
    """A data set in its public format.

    Args:
        folder: its place below a data folder.
        how: how to get it by hand, in a sentence.
        files: what is downloaded into the folder.
    """

    folder: str
    how: str
    files: tuple[RemoteFile, ...] = ()

    def locate(self, data: Path | None) -> Path:
        """The folder that holds the data set, downloaded if need be.

        Args:
            data: the folder above it; None for those of RANKSCOPE_DATA, and the cache.

        Raises:
            DataError: if it is not there and cannot be downloaded; says where it was looked for,
                and how to get it.
        """
        folders = [*data_folders(data), *_cache(data)]
        for folder in folders:
            if is_folder(folder / self.folder):
                return folder / self.folder
        try:
            return self._downloaded(folders)
        except _DownloadError as error:
            named = ", ".join(str(folder) for folder in data_folders(data))
            raise DataError(
                f"There is no folder {self.folder!r} (looked in: "
                f"{named or 'no folder, as none was named'}), and {error}. {self.how} Name the "
                f"folder above it with --data or {ENVIRONMENT}."
            ) from error

    def _downloaded(self, folders: list[Path]) -> Path:
        if os.environ.get(OFFLINE):
            raise _DownloadError(f"{OFFLINE} is set, so that nothing is downloaded")
        if not self.files:
            raise _DownloadError("it cannot be downloaded")
        try:
            import pooch
        except ImportError as error:
            raise _DownloadError(
                "pip install 'rankscope[download]' is needed to download it"
            ) from error
        target = folders[0] / self.folder
        # A folder of that name is complete: it gets it last.
        partial = target.with_name(f"{target.name}.part")
        try:
            partial.mkdir(parents=True, exist_ok=True)
            for file in self.files:
                pooch.retrieve(
                    file.url,
                    known_hash=file.checksum,
                    fname=file.name,
                    path=partial,
                    downloader=pooch.HTTPDownloader(timeout=_TIMEOUT),
                )
                _unpack(partial / file.name, file.members)
            partial.rename(target)
        except (OSError, ValueError, KeyError, tarfile.TarError) as error:
            raise _DownloadError(f"downloading it failed ({error})") from error
        return target


class _DownloadError(Exception):
    """Why there is nothing to be had from the network."""


def _cache(data: Path | None) -> list[Path]:
    """The folders of downloads, if none was named."""
    if data is not None:
        return []
    try:
        import pooch
    except ImportError:
        return []
    return [Path(pooch.os_cache("rankscope"))]


def _unpack(archive: Path, members: tuple[str, ...]) -> None:
    """Write the members beside the archive, under their last names, and delete it."""
    if not members:
        return
    with tarfile.open(archive) as opened:
        for member in members:
            content = opened.extractfile(member)
            if content is None:
                raise KeyError(f"{member} of {archive.name} is no file")
            write_atomically(archive.parent / Path(member).name, content.read())
    archive.unlink()


# The binary version of CIFAR-10: for each image a label and 3 x 32 x 32 bytes.


SHAPE = (3, 32, 32)
NUM_CLASSES = 10
_RECORD = 1 + 3 * 32 * 32


def read_cifar10(path: Path) -> tuple[Tensor, Tensor]:
    """Images (count, 3, 32, 32) of bytes, and labels (count,).

    Raises:
        DataError: if the file is not readable, holds no whole number of images, or another label.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    if not data or len(data) % _RECORD:
        raise DataError(
            f"{path} has {len(data):,} bytes, wanted a multiple of {_RECORD:,} (one label and "
            f"3 x 32 x 32 colours for each image). Get the binary version again."
        )
    records = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(-1, _RECORD)
    labels = records[:, 0].long()
    if int(labels.max()) >= NUM_CLASSES:
        raise DataError(f"{path} has the label {int(labels.max())}, wanted 0..{NUM_CLASSES - 1}.")
    return records[:, 1:].reshape(-1, *SHAPE), labels


# The idx format of MNIST and Fashion-MNIST: a few big-endian sizes, then bytes.


_BYTES = 0x08  # the code of unsigned bytes, the only type these data sets use


def read_idx(path: Path) -> Tensor:
    """All numbers of an idx file, plain or compressed (.gz), as bytes.

    Raises:
        DataError: if the file is not readable, of another type, too short or too long.
    """
    data = _read(path)
    if len(data) < 4 or data[:2] != b"\0\0":
        raise DataError(f"{path} is no idx file: it starts with {data[:4].hex(' ') or 'nothing'}.")
    kind, order = data[2], data[3]
    if kind != _BYTES:
        raise DataError(f"{path} holds numbers of type {kind:#04x}, wanted bytes ({_BYTES:#04x}).")
    start = 4 + 4 * order
    if len(data) < start:
        raise DataError(f"{path} is cut short: its {order} sizes need {start} bytes of header.")
    sizes = struct.unpack(f">{order}I", data[4:start])
    if len(data) - start != math.prod(sizes):
        raise DataError(
            f"{path} says it holds {' x '.join(map(str, sizes))} = {math.prod(sizes):,} numbers, "
            f"but {len(data) - start:,} follow. Get the file again."
        )
    return torch.frombuffer(bytearray(data[start:]), dtype=torch.uint8).reshape(sizes)


def _read(path: Path) -> bytes:
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        size = path.stat().st_size
        with gzip.open(path) as file:
            data = file.read(most_believed(size) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}. Get the file again.") from error
    if len(data) > most_believed(size):
        raise DataError(
            f"{path} has {size:,} bytes and holds more than {most_believed(size):,} when "
            "unpacked, which no data set does. Get the file again."
        )
    return data


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
        train = _read_labelled(where, "train")
        return DataSet(name, train, _read_labelled(where, "t10k"), num_classes=10)

    return load


def _read_labelled(where: Path, split: str) -> TensorData:
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
    train = _concatenate_files(
        [where / f"data_batch_{number}.bin" for number in range(1, 6)], PadCropFlip()
    )
    return DataSet("cifar10", train, _concatenate_files([where / "test_batch.bin"]), num_classes=10)


def _concatenate_files(paths: list[Path], augment: Augmentation | None = None) -> TensorData:
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


# Training labels replaced at random, to see how much of them a network learns by heart.


def with_random_labels(
    data: TensorData, share: float, num_classes: int, *, seed: int = 0
) -> TensorData:
    """The same samples, a share of them with labels drawn anew from all classes alike.

    A drawn label may be the right one: at share s of c classes, s (c - 1) / c become wrong. A
    larger share replaces those of a smaller one and more, for the same seed.

    Args:
        data: with labels 0..num_classes - 1.
        share: of samples whose labels are drawn, in 0..1; rounded to whole samples.
        num_classes: to draw from.
        seed: of which samples these are, and of their labels.

    Example:
        >>> data = TensorData(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]))
        >>> noisy = with_random_labels(data, 1.0, 5, seed=1)
        >>> noisy.targets.shape
        torch.Size([4])

    Raises:
        TrainingError: if there are no labels, the share is not in 0..1, or there is no class.

    Reference:
        Zhang et al. (2017), Sec. 2.1, arXiv:1611.03530.
    """
    if data.targets is None or not 0 <= share <= 1 or num_classes < 1:
        result = "no labels" if data.targets is None else f"{len(data):,} labels"
        raise TrainingError(
            f"with_random_labels: wanted labels, a share in 0..1 and at least 1 class, got "
            f"{result}, {share} and {num_classes}."
        )
    generator = torch.Generator().manual_seed(seed_of("label noise", seed))
    order = torch.randperm(len(data), generator=generator)
    drawn = torch.randint(num_classes, data.targets.shape, generator=generator)
    chosen = order[: round(share * len(data))]
    labels = data.targets.clone()
    labels[chosen] = drawn[chosen].to(labels.dtype)
    return replace(data, targets=labels)
