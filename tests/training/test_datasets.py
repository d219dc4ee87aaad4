"""Data sets from a folder, made here in small; and the real ones where they are."""

import builtins
import gzip
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from rankscope.errors import DataError, MissingExtraError
from rankscope.training.datasets import load_data_set

pytest.importorskip("sklearn")


def write_mnist(folder: Path, *, num_labels: int = 4) -> None:
    folder.mkdir(parents=True)
    sizes = b"\0\0\0\x02\0\0\0\x03"
    for split in ("train", "t10k"):
        images = b"\0\0\x08\x03\0\0\0\x04" + sizes + bytes(range(24))
        labels = b"\0\0\x08\x01" + num_labels.to_bytes(4, "big") + bytes(range(num_labels))
        (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(labels)


def write_cifar(folder: Path) -> None:
    folder.mkdir()
    for number, name in enumerate([f"data_batch_{at}" for at in range(1, 6)] + ["test_batch"]):
        record = bytes([number]) + bytes([number * 10]) * 3072
        (folder / f"{name}.bin").write_bytes(record * 2)


def test_digits_are_split_as_the_embedded_network_was_trained() -> None:
    digits = load_data_set("digits")
    assert (len(digits.train), len(digits.test), digits.num_classes) == (1437, 360, 10)
    assert digits.train.inputs.shape[1:] == (1, 8, 8)
    from rankscope.architectures.models.catalogue import build_trained

    with torch.no_grad():
        guesses = build_trained("digits")(digits.test.inputs).argmax(dim=1)
    # What the manifest of the embedded network says, on images it has not seen.
    assert round(float((guesses == digits.test.targets).double().mean()), 4) == 0.9889


def test_digits_without_scikit_learn_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"scikit-learn.*rankscope\[dev\]"):
        load_data_set("digits")


@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")]
)
def test_idx_data_sets_are_read_plain_or_packed(tmp_path: Path, name: str, folder: str) -> None:
    write_mnist(tmp_path / folder / "raw")
    data = load_data_set(name, tmp_path)
    assert data.train.inputs.shape == (4, 1, 2, 3)
    assert data.test.targets is not None
    assert data.test.targets.tolist() == [0, 1, 2, 3]
    batch = data.train.batches(4)[0].inputs
    torch.testing.assert_close(batch.flatten(), torch.arange(24) / 255)


def test_images_and_labels_of_different_number_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw", num_labels=5)
    with pytest.raises(DataError, match=r"images of shape \(4, 2, 3\) and labels of shape \(5,\)"):
        load_data_set("mnist", tmp_path)


def test_cifar10_joins_five_batches_and_augments_only_training(tmp_path: Path) -> None:
    write_cifar(tmp_path / "cifar-10-batches-bin")
    data = load_data_set("cifar10", tmp_path)
    assert (len(data.train), len(data.test)) == (10, 2)
    assert data.train.augment is not None
    assert data.test.augment is None
    assert data.train.targets is not None
    assert data.train.targets.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert data.test.batches(2)[0].inputs.shape == (2, 3, 32, 32)


def test_missing_data_say_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)
    with pytest.raises(DataError, match=r"no folder, as none was named.*cs\.toronto.*--data"):
        load_data_set("cifar10")
    monkeypatch.setenv("RANKSCOPE_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"no folder 'MNIST/raw' \(looked in: .*\), .*\. Get MNIST"):
        load_data_set("mnist")
    with pytest.raises(DataError, match="no data set 'imagenet'; choose one of digits, mnist"):
        load_data_set("imagenet")


def exported() -> Path | None:
    folders = map(Path, os.environ.get("RANKSCOPE_DATA", "").split(os.pathsep))
    return next((at for at in folders if (at / "cifar-10-batches-bin").is_dir()), None)


@pytest.mark.skipif(exported() is None, reason="needs the real CIFAR-10 in RANKSCOPE_DATA")
def test_the_real_cifar10_is_balanced() -> None:
    data = load_data_set("cifar10")
    assert data.train.targets is not None
    assert torch.bincount(data.train.targets).tolist() == [5000] * 10
