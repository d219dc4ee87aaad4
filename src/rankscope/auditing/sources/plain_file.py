"""Regular files, opened with errors that name the path and the reason."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rankscope.errors import ModelFileError

_POINTER = b"version https://git-lfs.github.com/"


@contextmanager
def plain_file(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A file open for reading, and its size in bytes.

    Raises:
        ModelFileError: if it does not exist, may not be read, is empty, is no regular file, or only
            stands for one that was not fetched.
    """
    status = file_status(path)
    # Asked before it is opened: a pipe would wait for a writer for ever.
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"Cannot read {str(path)!r}: wanted a file, got something else.")
    if status.st_size == 0:
        raise ModelFileError(f"Cannot read {str(path)!r}: it is empty (0 bytes).")
    try:
        with path.open("rb") as file:
            if file.read(len(_POINTER)) == _POINTER:
                raise ModelFileError(
                    f"{path} has {status.st_size} bytes that say where Git LFS keeps the file; "
                    "fetch it with: git lfs pull"
                )
            file.seek(0)
            yield file, status.st_size
    except OSError as error:
        raise _unreadable(path, error) from error


def file_status(path: Path) -> os.stat_result:
    """What the system knows about a path.

    Raises:
        ModelFileError: if nothing is there, or the system does not tell.
    """
    try:
        return path.stat()
    except (OSError, ValueError) as error:
        # ValueError is what Python raises for a path with a null character.
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ModelFileError:
    return ModelFileError(
        f"Cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}."
    )
