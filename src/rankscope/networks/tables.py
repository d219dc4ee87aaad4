"""Tables of data from files: samples with features, and their labels if there are any."""

import csv
import io
import math
from pathlib import Path

import numpy
from numpy.typing import NDArray

from rankscope.budget import require_within
from rankscope.errors import DataError, RequestError
from rankscope.files import plain_file
from rankscope.networks.datasets import read_cifar10, read_idx
from rankscope.rank.entanglement import DataTable
from rankscope.strict_json import shown
from rankscope.tensor_files.opening import open_tensors

MOST_BYTES = 2**28  # as numbers of 8 bytes they may take eight times as much
MOST_TEXT = 2**26
_LABELS = ("labels", "label", "y", "targets", "target")
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?")


def read_table(path: Path, *, label: str | None = None) -> DataTable:
    """Samples of a file, features in the order in which they stand there; pixels by squares.

    Args:
        path: `.csv` (with or without a line of names), `.npy` (samples, features or pixels), `.npz`
            (one array of samples and perhaps `labels`), an idx file of images (its labels are read
            from the file beside it) or a CIFAR-10 batch (`.bin`).
        label: the column of the labels, by name or number (-1 for the last); None for none, except
            that a file which names its labels has them.

    Raises:
        DataError: if the file cannot be read, or holds anything but numbers of one shape.
        RequestError: if there is no such column.
        BudgetError: if it is too large.
    """
    with plain_file(path, error=DataError) as (_, size):
        limit = MOST_TEXT if path.suffix == ".csv" else MOST_BYTES
        require_within(str(path), "the number of bytes", size, limit)
    name = path.name.removesuffix(".gz")
    features: NDArray[numpy.generic]
    labels: NDArray[numpy.int64] | None = None
    if path.suffix == ".csv":
        return _with_label(*_read_csv(path), label)
    if path.suffix in (".npy", ".npz"):
        features, labels = _read_numpy(path)
    elif name.endswith("-ubyte"):
        features = read_idx(path).numpy()
        beside = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
        if beside != path and beside.is_file():
            labels = read_idx(beside).numpy().astype(numpy.int64)
    elif path.suffix == ".bin":
        images, classes = read_cifar10(path)
        features, labels = images.numpy().transpose(0, 2, 3, 1), classes.numpy()
    else:
        raise DataError(
            f"{path}: wanted .csv, .npy, .npz, an idx file (…-ubyte, also .gz) or a CIFAR-10 "
            f"batch (.bin), got {path.suffix or 'no ending'!r}."
        )
    if features.ndim not in (2, 3, 4) or 0 in features.shape:
        raise DataError(f"{path} must hold samples with features, got shape {features.shape}.")
    flat = by_squares(features) if features.ndim > 2 else features.astype(numpy.float64)
    if label is not None:
        return _with_label(flat, None, label)
    return DataTable(flat, labels)


def by_squares(images: NDArray[numpy.generic]) -> NDArray[numpy.float64]:
    """Pixels (count, height, width[, colours]) in a row in which halves are halves of the image.

    The longer side is halved, always; the colours of a pixel stay together. One or three colours
    may also stand before height and width.

    Example:
        >>> by_squares(numpy.arange(16).reshape(1, 4, 4))[0, :8].astype(int).tolist()
        [0, 1, 4, 5, 2, 3, 6, 7]
    """
    if images.ndim == 4 and images.shape[1] in (1, 3) and images.shape[3] not in (1, 3):
        images = images.transpose(0, 2, 3, 1)
    height, width = images.shape[1:3]
    places: list[int] = []
    pending = [(0, height, 0, width)]
    while pending:
        top, bottom, left, right = pending.pop()
        if bottom - top <= 1 and right - left <= 1:
            places.append(top * width + left)
        elif bottom - top >= right - left:
            middle = (top + bottom + 1) // 2
            pending += [(middle, bottom, left, right), (top, middle, left, right)]
        else:
            middle = (left + right + 1) // 2
            pending += [(top, bottom, middle, right), (top, bottom, left, middle)]
    rows = images.reshape(len(images), height * width, -1)[:, places]
    return rows.reshape(len(images), -1).astype(numpy.float64)


def _read_csv(path: Path) -> tuple[NDArray[numpy.float64], list[str] | None]:
    with plain_file(path, error=DataError) as (file, _):
        try:
            text = file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is no text: {error.reason}.") from error
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise DataError(f"{path} is no table of commas: {error}.") from error
    if not rows:
        raise DataError(f"{path} has no rows.")
    names = None if all(_number(cell) is not None for cell in rows[0]) else rows.pop(0)
    width = len(rows[0]) if rows else 0
    values = numpy.empty((len(rows), width))
    for at, row in enumerate(rows):
        if len(row) != width:
            raise DataError(
                f"{path}, row {at + 1}: {len(row)} cells, but the rows before have {width}."
            )
        for place, cell in enumerate(row):
            number = _number(cell)
            if number is None:
                raise DataError(
                    f"{path}, row {at + 1}, column {place + 1}: wanted a number, got {shown(cell)}."
                )
            values[at, place] = number
    return values, names


def _number(cell: str) -> float | None:
    if cell.strip().lower() in _MISSING:
        return math.nan
    try:
        return float(cell)
    except ValueError:
        return None


def _read_numpy(path: Path) -> tuple[NDArray[numpy.generic], NDArray[numpy.int64] | None]:
    source = open_tensors(path, may_be_bare=True)
    tensors = {entry.name: source.read(entry.name) for entry in source.entries}
    named = next((name for name in _LABELS if name in tensors), None)
    labels = None if named is None else tensors.pop(named).numpy()
    large = {name: tensor for name, tensor in tensors.items() if tensor.ndim >= 2}
    if len(large) != 1:
        holds = ", ".join(f"{name or 'one array'} {tuple(t.shape)}" for name, t in tensors.items())
        raise DataError(f"{path} must hold one array (samples, features, …), got {holds}.")
    (features,) = large.values()
    if features.is_complex():
        raise DataError(f"{path} holds complex numbers; wanted real ones.")
    return features.numpy(), None if labels is None else _classes(labels)


def _with_label(
    values: NDArray[numpy.float64], names: list[str] | None, label: str | None
) -> DataTable:
    if label is None:
        return DataTable(values)
    if names is not None and label in names:
        place = names.index(label)
    else:
        try:
            place = int(label)
        except ValueError:
            known = f"; its columns are {', '.join(names[:20])}" if names else ""
            raise RequestError(
                f"--label: there is no column {label!r}{known}. Give a name or a number from 0, "
                "-1 for the last."
            ) from None
    width = values.shape[1]
    if not -width <= place < width:
        raise RequestError(f"--label: there are {width} columns, got {place}.")
    chosen = values[:, place]
    others = numpy.delete(values, place, axis=1)
    return DataTable(others, _classes(chosen))


def _classes(labels: NDArray[numpy.generic]) -> NDArray[numpy.int64]:
    if labels.ndim != 1:
        raise DataError(f"Labels must be one number for each sample, got shape {labels.shape}.")
    if labels.dtype.kind == "f" and not numpy.isfinite(labels).all():
        raise DataError("Some labels are not finite numbers.")
    classes: NDArray[numpy.int64] = numpy.unique(labels, return_inverse=True)[1]
    return classes.astype(numpy.int64)
