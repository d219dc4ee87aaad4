"""Files: written whole or not at all, read with errors that name the path and the reason."""

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rankscope.errors import ModelFileError, OutputError, RankscopeError

# What `write_atomically` writes, and what version 0.1 wrote into the folder of a measurement.
_LEFTOVER = re.compile(r"\.rankscope-[0-9a-f-]+\.tmp|.+\.(json|npy|sealed)\.[0-9]+\.part")
_GIT_LFS = b"version https://git-lfs.github.com/"


def write_atomically(path: Path | str, data: bytes, *, is_synced: bool = True) -> None:
    """Write a file through a temporary one beside it; on any failure the old file stays.

    A link is followed, and an existing file keeps its permissions.

    Args:
        path: of the file.
        data: its content.
        is_synced: whether to wait until the data are on the disk. Without it, the file may be there
            but damaged after the power failed, though not after the process was killed.

    Raises:
        OutputError: if the file cannot be written; the message names the path and the reason.
    """
    try:
        target = Path(os.path.realpath(path))
        permissions = _permissions(target, path)
        _write(target, data, permissions, is_synced=is_synced)
    except OutputError:
        raise
    except (OSError, ValueError) as error:
        raise OutputError(f"Cannot write {str(path)!r}: {_words(error)}.") from error


def is_leftover(path: Path) -> bool:
    """Whether a file is what a killed process left of one it was writing."""
    return _LEFTOVER.fullmatch(path.name) is not None


def remove_leftovers(folder: Path, *, of: str | None = None) -> None:
    """Remove what killed processes left half-written.

    Args:
        folder: nobody else may be writing there.
        of: only what was to become the file of this name, so that nobody else may write that one.
    """
    start = "" if of is None else _temporary_start(of)
    for path in folder.iterdir():
        if is_leftover(path) and path.name.startswith(start):
            path.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless it is there.

    Raises:
        OutputError: if it cannot be made; the message names the path and the reason.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise OutputError(f"Cannot make the folder {str(folder)!r}: {_words(error)}.") from error


@contextmanager
def plain_file(
    path: Path, *, error: type[RankscopeError] = ModelFileError
) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file for reading; gives the file and its size in bytes.

    Raises:
        RankscopeError: of the class `error`, if it does not exist, may not be read, is empty, is no
            regular file, or only stands for one that was not fetched.
    """
    status = file_status(path, error=error)
    # Asked before it is opened: a pipe would wait for a writer for ever.
    if not stat.S_ISREG(status.st_mode):
        raise error(f"Cannot read {str(path)!r}: wanted a file, got something else.")
    if status.st_size == 0:
        raise error(f"Cannot read {str(path)!r}: it is empty (0 bytes).")
    try:
        with path.open("rb") as file:
            if file.read(len(_GIT_LFS)) == _GIT_LFS:
                raise error(
                    f"{path} has {status.st_size} bytes that say where Git LFS keeps the file; "
                    "fetch it with: git lfs pull"
                )
            file.seek(0)
            yield file, status.st_size
    except OSError as reason:
        raise _unreadable(path, reason, error) from reason


def file_status(path: Path, *, error: type[RankscopeError] = ModelFileError) -> os.stat_result:
    """What the system knows about a path.

    Raises:
        RankscopeError: of the class `error`, if nothing is there, or the system does not tell.
    """
    try:
        return path.stat()
    except (OSError, ValueError) as reason:
        raise _unreadable(path, reason, error) from reason


def _unreadable(path: Path, reason: Exception, error: type[RankscopeError]) -> RankscopeError:
    return error(f"Cannot read {str(path)!r}: {_words(reason)}.")


def _words(reason: Exception) -> str:
    """Why the system refused; ValueError is what Python raises for a path with a null character."""
    return getattr(reason, "strerror", None) or str(reason)


def _permissions(target: Path, path: Path | str) -> int | None:
    """Permissions of the file that is about to be replaced; None if there is none."""
    if not target.parent.is_dir():
        raise OutputError(
            f"Cannot write {str(path)!r}: there is no folder {str(target.parent)!r}; create it."
        )
    if not target.exists():
        return None
    mode = target.stat().st_mode
    if stat.S_ISDIR(mode):
        raise OutputError(f"Cannot write {str(path)!r}: it is a folder; add the name of a file.")
    if not stat.S_ISREG(mode):
        # Renaming onto a device or a pipe would take its place.
        raise OutputError(f"Cannot write {str(path)!r}: it is a device or a pipe, not a file.")
    if not os.access(target, os.W_OK):
        raise OutputError(f"Cannot write {str(path)!r}: the file there may not be changed.")
    return stat.S_IMODE(mode)


def _temporary_start(name: str) -> str:
    """How the temporary names of a file begin; its own may be as long as the system allows."""
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()
    return f".rankscope-{digest[:8]}-"


def _write(target: Path, data: bytes, permissions: int | None, *, is_synced: bool) -> None:
    temporary = target.with_name(f"{_temporary_start(target.name)}{secrets.token_hex(8)}.tmp")
    try:
        # Not `tempfile`: its files are private, but ours should follow the user's umask.
        with temporary.open("xb") as file:
            file.write(data)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
        if permissions is not None:
            temporary.chmod(permissions)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
