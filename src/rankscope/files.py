"""Files that are either written whole or not at all."""

import os
import secrets
import stat
from pathlib import Path

from rankscope.errors import OutputError


def write_atomically(path: Path | str, data: bytes) -> None:
    """Write a file through a temporary one beside it; on any failure the old file stays.

    A link is followed, and an existing file keeps its permissions.

    Raises:
        OutputError: if the file cannot be written; the message names the path and the reason.
    """
    try:
        target = Path(os.path.realpath(path))
        permissions = _permissions(target, path)
        _write(target, data, permissions)
    except OutputError:
        raise
    except (OSError, ValueError) as error:
        # ValueError is what Python raises for a path with a null character.
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"Cannot write {str(path)!r}: {reason}.") from error


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless it is there.

    Raises:
        OutputError: if it cannot be made; the message names the path and the reason.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"Cannot make the folder {str(folder)!r}: {reason}.") from error


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


def _write(target: Path, data: bytes, permissions: int | None) -> None:
    # A name of its own: that of the target may be as long as the file system allows.
    temporary = target.with_name(f".rankscope-{secrets.token_hex(8)}.tmp")
    try:
        # Not `tempfile`: its files are private, but ours should follow the user's umask.
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if permissions is not None:
            temporary.chmod(permissions)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
