import builtins
import gzip
import hashlib
import io
import os
import struct
import sys
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import DataError, MissingExtraError, TrainingError
from rankscope.networks import (
    RemoteFile,
    Source,
    TensorData,
    load_data_set,
    read_cifar10,
    read_idx,
    with_random_labels,
)

# Binary batches of CIFAR-10, whole and broken.


def test_a_record_is_a_label_and_the_colours_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "batch.bin"
    planes = b"\1" * 1024 + b"\2" * 1024 + b"\3" * 1024
    path.write_bytes(b"\7" + planes + b"\0" + planes[::-1])
    images, labels = read_cifar10(path)
    assert images.dtype == torch.uint8
    assert labels.tolist() == [7, 0]
    assert images[:, :, 31, 5].tolist() == [[1, 2, 3], [3, 2, 1]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes, wanted a multiple of 3,073"),
        (bytes(3072), "has 3,072 bytes"),
        (b"\x0a" + bytes(3072), r"has the label 10, wanted 0\.\.9"),
    ],
)
def test_broken_batches_are_refused_with_numbers(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "batch.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_cifar10(path)


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.bin cannot be read"):
        read_cifar10(tmp_path / "absent.bin")


# Files of MNIST's format, whole and broken.


def idx_bytes(numbers: torch.Tensor) -> bytes:
    header = bytes([0, 0, 8, numbers.ndim]) + struct.pack(f">{numbers.ndim}I", *numbers.shape)
    return header + bytes(numbers.flatten().tolist())


@settings(deadline=None, max_examples=20)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3), packed=st.booleans())
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], packed: bool
) -> None:
    numbers = torch.arange(torch.Size(sizes).numel()).to(torch.uint8).reshape(sizes)
    path = tmp_path_factory.mktemp("idx") / ("file.gz" if packed else "file")
    path.write_bytes(gzip.compress(idx_bytes(numbers)) if packed else idx_bytes(numbers))
    assert torch.equal(read_idx(path), numbers)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with nothing"),
        (b"\x89PNG....", "starts with 89 50 4e 47"),
        (b"\0\0\x0d\1\0\0\0\1....", "type 0x0d, wanted bytes"),
        (b"\0\0\x08\3\0\0\0\1", "its 3 sizes need 16 bytes"),
        (b"\0\0\x08\2\0\0\0\2\0\0\0\3.....", "2 x 3 = 6 numbers, but 5 follow"),
        (b"\0\0\x08\1\0\0\0\2...", "2 = 2 numbers, but 3 follow"),
    ],
)
def test_broken_files_are_refused_with_numbers(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "broken"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(path)


@pytest.mark.parametrize("keep", [3, 15, -1])
def test_a_compressed_file_that_is_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "short.gz"
    path.write_bytes(gzip.compress(idx_bytes(torch.ones(5, dtype=torch.uint8)))[:keep])
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(path)


# Datasets.


# Data sets from a folder, or from a server that stands for the network.


pytest.importorskip("pooch")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *values: object) -> None:
        """Says nothing."""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder, and the address under which its files are served."""
    monkeypatch.delenv("RANKSCOPE_OFFLINE")
    monkeypatch.setenv("no_proxy", "*")
    folder = tmp_path / "server"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def remote(served: tuple[Path, str], name: str, content: bytes) -> RemoteFile:
    folder, address = served
    (folder / name).write_bytes(content)
    return RemoteFile(f"{address}/{name}", f"sha256:{hashlib.sha256(content).hexdigest()}")


def test_what_is_in_no_folder_is_downloaded_once(tmp_path: Path, served: tuple[Path, str]) -> None:
    files = (remote(served, "one.txt", b"one"), remote(served, "two.txt", b"two"))
    source, data = Source("set/raw", "Get it.", files), tmp_path / "data"
    where = source.locate(data)
    assert where == data / "set" / "raw"
    assert sorted(path.name for path in where.iterdir()) == ["one.txt", "two.txt"]
    assert (where / "two.txt").read_bytes() == b"two"
    (served[0] / "one.txt").unlink()
    assert source.locate(data) == where
    assert [path.name for path in where.parent.iterdir()] == ["raw"]


def test_an_archive_is_unpacked_and_only_its_named_members_are_taken(
    tmp_path: Path, served: tuple[Path, str]
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (("set/a.bin", b"aa"), ("../evil", b"x"), ("set/b.bin", b"b")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        archive.addfile(_folder("set/folder"))
    file = remote(served, "set.tar.gz", packed.getvalue())
    good = RemoteFile(file.url, file.checksum, ("set/a.bin", "set/b.bin"))
    where = Source("set", "Get it.", (good,)).locate(tmp_path / "data")
    assert {path.name: path.read_bytes() for path in where.iterdir()} == {
        "a.bin": b"aa",
        "b.bin": b"b",
    }
    absent = RemoteFile(file.url, file.checksum, ("set/c.bin",))
    with pytest.raises(DataError, match=r"filename 'set/c\.bin' not found.*Get it"):
        Source("other", "Get it.", (absent,)).locate(tmp_path / "data")
    no_file = RemoteFile(file.url, file.checksum, ("set/folder",))
    with pytest.raises(DataError, match=r"set/folder of set\.tar\.gz is no file"):
        Source("third", "Get it.", (no_file,)).locate(tmp_path / "data")


def _folder(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE
    return member


def test_a_download_that_broke_off_goes_on_and_is_no_data_set_before(
    tmp_path: Path, served: tuple[Path, str]
) -> None:
    first, second = remote(served, "one.txt", b"one"), remote(served, "two.txt", b"two")
    (served[0] / "two.txt").unlink()
    source, data = Source("set", "Get it by hand.", (first, second)), tmp_path / "data"
    with pytest.raises(DataError, match=r"downloading it failed \(404 .*Get it by hand"):
        source.locate(data)
    assert not (data / "set").exists()
    (served[0] / "one.txt").unlink()  # it is there already
    (served[0] / "two.txt").write_bytes(b"two")
    assert (source.locate(data) / "one.txt").read_bytes() == b"one"


def test_another_content_is_thrown_away(tmp_path: Path, served: tuple[Path, str]) -> None:
    file = remote(served, "one.txt", b"one")
    (served[0] / "one.txt").write_bytes(b"two")
    with pytest.raises(DataError, match="does not match the known hash"):
        Source("set", "Get it.", (file,)).locate(tmp_path / "data")
    assert list((tmp_path / "data").glob("**/one.txt")) == []


def test_without_a_folder_the_cache_is_used(
    tmp_path: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    source = Source("set", "Get it.", (remote(served, "one.txt", b"one"),))
    assert source.locate(None) == tmp_path / "cache" / "rankscope" / "set"
    monkeypatch.setenv("RANKSCOPE_OFFLINE", "1")
    assert source.locate(None) == tmp_path / "cache" / "rankscope" / "set"


def test_without_network_or_pooch_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source("set", "Get it.", (RemoteFile("http://127.0.0.1:1/one", "md5:0"),))
    with pytest.raises(DataError, match=r"looked in: .*, and RANKSCOPE_OFFLINE is set, .*Get it"):
        source.locate(tmp_path)
    monkeypatch.delenv("RANKSCOPE_OFFLINE")
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(DataError, match=r"downloading it failed \(.*127\.0\.0\.1"):
        source.locate(tmp_path)
    with pytest.raises(DataError, match="and it cannot be downloaded"):
        Source("other", "Get it.").locate(tmp_path)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r"rankscope\[download\]' is needed .*Get it"):
        source.locate(tmp_path)
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)
    with pytest.raises(DataError, match="looked in: no folder, as none was named"):
        source.locate(None)


# Data sets from a folder, made here in small; and the real ones where they are.


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
    from rankscope.networks import build_trained

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


# Labels replaced at random.


def labelled(count: int, classes: int) -> TensorData:
    return TensorData(torch.arange(count)[:, None], torch.arange(count) % classes)


def targets(data: TensorData) -> torch.Tensor:
    assert data.targets is not None
    return data.targets


@settings(deadline=None)
@given(
    count=st.integers(1, 40),
    classes=st.integers(1, 10),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_at_most_the_share_is_changed_and_all_else_stays(
    count: int, classes: int, share: float, seed: int
) -> None:
    data = labelled(count, classes)
    before = targets(data).clone()
    noisy = with_random_labels(data, share, classes, seed=seed)
    assert int((targets(noisy) != before).sum()) <= round(share * count)
    assert 0 <= int(targets(noisy).min()) <= int(targets(noisy).max()) < classes
    assert torch.equal(targets(data), before)
    assert torch.equal(noisy.inputs, data.inputs)
    again = with_random_labels(data, share, classes, seed=seed)
    assert torch.equal(targets(noisy), targets(again))


def test_draws_are_from_all_classes_alike() -> None:
    data = labelled(20_000, 4)
    noisy = targets(with_random_labels(data, 0.5, 4))
    wrong = float((noisy != targets(data)).double().mean())
    # Expected: 0.5 * 3/4; five standard deviations of a mean of 10,000 draws.
    assert abs(wrong - 0.375) < 5 * (0.5 * 0.1875 / 10_000) ** 0.5
    counts = torch.bincount(noisy, minlength=4).double() / len(noisy)
    assert float((counts - 0.25).abs().max()) < 5 * (0.1875 / 20_000) ** 0.5


def test_a_larger_share_replaces_what_a_smaller_one_does_and_more() -> None:
    data = labelled(200, 10)
    few, many = (targets(with_random_labels(data, share, 10)) for share in (0.3, 0.8))
    changed = few != targets(data)
    assert torch.equal(few[changed], many[changed])
    assert int((many != targets(data)).sum()) > int(changed.sum())


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_outside_the_unit_interval_is_refused(share: float) -> None:
    with pytest.raises(TrainingError, match=rf"got 4 labels, {share} and 2"):
        with_random_labels(labelled(4, 2), share, 2)


def test_samples_without_labels_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"got no labels, 0.5 and 2"):
        with_random_labels(TensorData(torch.zeros(3, 1)), 0.5, 2)


def test_a_packed_file_that_grows_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankscope.tensor_files.archive._ANYWAY", 1000)
    path = tmp_path / "bomb-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(bytes(10**6)))
    with pytest.raises(DataError, match=r"bytes and holds more than [\d,]+ when unpacked"):
        read_idx(path)
