import os
from pathlib import Path

import pytest

from rankscope.errors import ModelFileError
from rankscope.files import file_status, plain_file


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught, plain_file(path):
        pass
    return str(caught.value)


def test_a_file_is_open_at_its_beginning_and_its_size_is_known(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with plain_file(tmp_path / "file") as (file, size):
        assert (file.read(), size) == (b"content", 7)
    assert file.closed


def test_what_is_no_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        assert "wanted a file, got something else" in refusal(path)


def test_missing_and_empty_files_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent").endswith("absent': No such file or directory.")
    assert "embedded null" in refusal(Path("a\x00b"))
    (tmp_path / "empty").touch()
    assert "it is empty (0 bytes)" in refusal(tmp_path / "empty")


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ModelFileError, match=r"loop': Too many levels of symbolic links"):
        file_status(tmp_path / "loop")


def test_a_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "file").write_bytes(b"content")
    monkeypatch.setattr(Path, "open", denied)  # permissions mean nothing to root
    assert "Permission denied" in refusal(tmp_path / "file")


def test_a_pointer_of_git_lfs_is_told_from_the_file_it_stands_for(tmp_path: Path) -> None:
    text = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    (tmp_path / "file").write_bytes(text)
    assert f"has {len(text)} bytes that say where Git LFS keeps the file" in refusal(
        tmp_path / "file"
    )
