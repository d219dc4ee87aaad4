"""Data sets from a folder, or from a server that stands for the network."""

import hashlib
import io
import sys
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from rankscope.errors import DataError
from rankscope.training.datasets import RemoteFile, Source

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
