import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.errors import OutputError
from rankscope.files import folder_beside, require_writable, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_the_bytes_arrive_whole_and_nothing_else_is_left(tmp_path: Path, data: bytes) -> None:
    write_atomically(tmp_path / "picture.svg", data)
    assert (tmp_path / "picture.svg").read_bytes() == data
    assert names(tmp_path) == ["picture.svg"]


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    write_atomically(str(tmp_path / "a.svg"), b"x")
    assert (tmp_path / "a.svg").read_bytes() == b"x"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    target = tmp_path / "nowhere" / "a.svg"
    with pytest.raises(
        OutputError, match=r"nowhere/a\.svg': there is no folder '.*nowhere'; create"
    ):
        write_atomically(target, b"x")
    assert names(tmp_path) == []


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OutputError, match=r"there is no folder '.*/file'"):
        write_atomically(tmp_path / "file" / "a.svg", b"x")


def test_a_folder_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.svg").mkdir()
    with pytest.raises(OutputError, match=r"a\.svg': it is a folder; add the name of a file"):
        write_atomically(tmp_path / "a.svg", b"x")
    assert (tmp_path / "a.svg").is_dir()


def test_a_device_or_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match=r"pipe': it is a device or a pipe, not a file"):
        write_atomically(tmp_path / "pipe", b"x")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_file_that_may_not_be_changed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.svg").write_bytes(b"old")
    # Root may change everything, so that permissions alone would not refuse it.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputError, match=r"a\.svg': the file there may not be changed"):
        write_atomically(tmp_path / "a.svg", b"new")
    assert (tmp_path / "a.svg").read_bytes() == b"old"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_on_the_way_keeps_the_old_file_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (tmp_path / "a.svg").write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OutputError, match=r"Cannot write '.*a\.svg': No space left on device"):
        write_atomically(tmp_path / "a.svg", b"new")
    assert (tmp_path / "a.svg").read_bytes() == b"old"
    assert names(tmp_path) == ["a.svg"]


def test_an_interruption_leaves_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a.svg", b"new")
    assert names(tmp_path) == []


def test_a_path_with_a_null_character_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="embedded null"):
        write_atomically(f"{tmp_path}/a\x00b", b"x")


def test_a_name_as_long_as_the_file_system_allows_can_be_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("a" * 255), b"x")
    assert names(tmp_path) == ["a" * 255]
    with pytest.raises(OutputError, match="File name too long"):
        write_atomically(tmp_path / ("a" * 256), b"x")


def test_permissions_of_an_existing_file_are_kept_and_new_files_follow_the_umask(
    tmp_path: Path,
) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_atomically(tmp_path / "new", b"x")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "old").write_bytes(b"x")
    (tmp_path / "old").chmod(0o640)
    write_atomically(tmp_path / "old", b"y")
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def refusal(path: Path, *, is_folder: bool = False) -> str:
    with pytest.raises(OutputError) as caught:
        require_writable(path, is_folder=is_folder)
    return str(caught.value)


def test_a_path_is_checked_without_touching_anything(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    require_writable(tmp_path / "file")
    require_writable(tmp_path / "new")
    require_writable(tmp_path, is_folder=True)
    require_writable(tmp_path / "a" / "b", is_folder=True)
    assert "there is no folder" in refusal(tmp_path / "a" / "b")
    assert "it is a folder; add the name of a file" in refusal(tmp_path)
    assert f"'{tmp_path / 'file'}' is a file" in refusal(tmp_path / "file" / "in", is_folder=True)
    assert "embedded null" in refusal(Path("a\0b"))
    assert names(tmp_path) == ["file"]


def test_a_folder_to_which_nothing_may_be_added_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may change everything, so that permissions alone would not refuse it.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert f"nothing may be added to the folder '{tmp_path}'" in refusal(tmp_path / "new")


def test_what_a_killed_process_left_of_a_file_is_removed_by_the_next(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / "a.svg", b"half")
    (other,) = names(tmp_path)
    write_atomically(tmp_path / "b.svg", b"whole")
    assert other in names(tmp_path)  # of another file
    write_atomically(tmp_path / "a.svg", b"whole")
    assert names(tmp_path) == ["a.svg", "b.svg"]


def test_what_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    with folder_beside(tmp_path / "model") as first:
        (first / "weights").write_bytes(b"half")
        with folder_beside(tmp_path / "model") as second:
            assert first != second
            assert (first / "weights").is_file()
        assert names(tmp_path) == [first.name]
    assert names(tmp_path) == []
