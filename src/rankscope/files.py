"""Files: written whole or not at all, read with errors that name the path and the reason.

What is not whole yet has a temporary name beside its place, and a lock that the kernel releases
when its process ends, however that ends. So whoever writes the same file next can tell what a
killed process left from what another one is writing, and removes it.
"""

import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from rankscope.errors import ModelFileError, OutputError, RankscopeError

try:
    import fcntl
except ImportError:  # Windows, where what a killed process left stays
    fcntl = None  # type: ignore[assignment]

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


def require_writable(path: Path | str, *, is_folder: bool = False) -> None:
    """Refuse a path that could not be written, before anything is computed for it.

    Nothing is made or changed.

    Args:
        path: of a file whose folder must be there; or of a folder that will be made with those
            above it.
        is_folder: which of the two.

    Raises:
        OutputError: as writing would.
    """
    try:
        target = Path(os.path.realpath(path))
        place = target.parent
        if is_folder:
            place = next(one for one in (target, *target.parents) if one.exists())
            if not place.is_dir():
                raise OutputError(f"Cannot make the folder {str(path)!r}: '{place}' is a file.")
        else:
            _permissions(target, path)
        if not os.access(place, os.W_OK | os.X_OK):
            raise OutputError(
                f"Cannot write {str(path)!r}: nothing may be added to the folder {str(place)!r}."
            )
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
            _remove(path)


@contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """A new folder in the same place, in which another one is prepared; gone afterwards.

    Raises:
        OutputError: if it cannot be made or written.
    """
    if target.exists() and not target.is_dir():
        raise OutputError(f"Cannot write {str(target)!r}: a file of that name is in the way.")
    folder, descriptor = _temporary_name(target), None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_orphans(target)
        is_held = False
        while not is_held:
            folder.mkdir()
            with suppress(FileNotFoundError):
                descriptor = os.open(folder, os.O_RDONLY)
                is_held = _hold(descriptor, folder)
        yield folder
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        raise OutputError(f"Cannot write {str(target)!r}: {_words(error)}.") from error
    finally:
        if descriptor is not None:
            os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


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


def is_file(path: Path | str) -> bool:
    """Whether a regular file is there; for a name that no file can have, no error but False."""
    return _is_there(path, stat.S_ISREG)


def is_folder(path: Path | str) -> bool:
    """Whether a folder is there; for a name that none can have, no error but False."""
    return _is_there(path, stat.S_ISDIR)


def _is_there(path: Path | str, is_kind: Callable[[int], bool]) -> bool:
    try:
        return is_kind(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


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


def _temporary_name(target: Path) -> Path:
    return target.with_name(f"{_temporary_start(target.name)}{secrets.token_hex(8)}.tmp")


def _hold(descriptor: int, path: Path) -> bool:
    """Take the lock of a new file or folder, for as long as the descriptor is open.

    False if it was taken for what a killed process left, and removed, before it was held.
    """
    if fcntl is None:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove_orphans(target: Path) -> None:
    """Remove what killed processes left of a file or folder; what is being written is held."""
    if fcntl is None:
        return
    start = _temporary_start(target.name)
    for path in target.parent.iterdir():
        if not (path.name.startswith(start) and is_leftover(path)):
            continue
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write(target: Path, data: bytes, permissions: int | None, *, is_synced: bool) -> None:
    if is_synced:
        # Not where thousands of files are written: their folder is cleared by whoever holds it.
        _remove_orphans(target)
    is_written = False
    while not is_written:
        temporary = _temporary_name(target)
        try:
            # Not `tempfile`: its files are private, but ours should follow the user's umask.
            with temporary.open("xb") as file:
                if not _hold(file.fileno(), temporary):
                    continue
                file.write(data)
                file.flush()
                if is_synced:
                    os.fsync(file.fileno())
                if permissions is not None:
                    temporary.chmod(permissions)
                temporary.replace(target)
                is_written = True
        finally:
            temporary.unlink(missing_ok=True)
