"""The folder of a long run, from which the same call goes on after an interruption.

    with ResumableFolder(path, {"seed": 0}, what="measurement", manifest="manifest.json") as folder:
        ...

A folder belongs to one run: its manifest says which, and another run is refused with what differs.
It is used by one process at a time: a lock that the kernel releases when its process ends, however
that ends, refuses a second one. Files appear under their names only when they are whole
(`write_atomically`); what a killed process left half-written never stands in the way and is removed
by the next one that holds the lock.
"""

import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rankscope.errors import CheckpointError, InUseError, OutputError, RankscopeError
from rankscope.files import is_leftover, make_folder, remove_leftovers, write_atomically
from rankscope.strict_json import read_document

try:
    import fcntl
except ImportError:  # Windows, where nothing keeps two processes from the same folder
    fcntl = None  # type: ignore[assignment]

_SHOWN = 60  # characters of a value in a message, at most

Identity = Mapping[str, object]


def require_same(path: Path, recorded: Identity, wanted: Identity, *, what: str) -> None:
    """Refuse a folder that belongs to something else.

    Args:
        path: the folder.
        recorded: what it says that it belongs to.
        wanted: what it is asked for.
        what: the kind of run, for the message.

    Raises:
        CheckpointError: if the two differ; the message names the first key that does.
    """
    for key in sorted({*recorded, *wanted}):
        if recorded.get(key) != wanted.get(key):
            one, other = difference(str(recorded.get(key)), str(wanted.get(key)))
            raise CheckpointError(
                f"The folder {str(path)!r} belongs to another {what}: its {key} is {one}, not "
                f"{other}. Name another folder, or ask for the same {what}."
            )


def difference(one: str, other: str) -> tuple[str, str]:
    """Two texts, long ones without most of what they have in common."""
    pairs = enumerate(zip(one, other, strict=False))
    common = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    start = max(0, common - _SHOWN // 2) if max(len(one), len(other)) > _SHOWN else 0
    cut = ["…" * bool(start) + text[start : start + _SHOWN] for text in (one, other)]
    return cut[0], cut[1]


class ResumableFolder:
    """A folder that belongs to one run and to one process; a context that ends its use.

    Args:
        path: created if it is not there.
        identity: plain data that says what the run is.
        what: the kind of run, a word for messages; folders inside each other are of different kinds
            or at different paths.
        manifest: the file that holds the identity; None if the caller keeps it in its own file.
        is_shared: whether the folder may hold other files before it has a manifest.
        waits: whether to wait for a process that uses the folder, instead of refusing.
        agree: gives the identity to go on with from that of the manifest and the one asked for, or
            raises; None: the two must be the same.
        error: what is raised if the manifest cannot be read.

    Raises:
        CheckpointError: if the folder belongs to another run, or holds other things.
        InUseError: if another process uses it.
        OutputError: if it cannot be written.
    """

    def __init__(  # noqa: PLR0913 - all by name
        self,
        path: Path,
        identity: Identity,
        *,
        what: str,
        manifest: str | None = None,
        is_shared: bool = False,
        waits: bool = False,
        agree: Callable[[dict[str, Any], dict[str, Any]], Identity] | None = None,
        error: type[RankscopeError] = CheckpointError,
    ) -> None:
        self.path = path
        self._what = what
        make_folder(path)
        self._lock = _Lock(path, what, waits=waits)
        try:
            if manifest is not None:
                file = path / manifest
                wanted = json.loads(json.dumps(identity))
                recorded = _read_manifest(file, error) if file.is_file() else None
                if recorded is None and not is_shared:
                    self._require_empty(manifest)
                agreed = wanted if recorded is None else (agree or self._same)(recorded, wanted)
                if agreed != recorded:
                    data = json.dumps(dict(agreed), indent=1, allow_nan=False)
                    write_atomically(file, data.encode())
            remove_leftovers(path)
        except BaseException:
            self._lock.release()
            raise

    def _same(self, recorded: dict[str, Any], wanted: dict[str, Any]) -> Identity:
        require_same(self.path, recorded, wanted, what=self._what)
        return recorded

    def _require_empty(self, manifest: str) -> None:
        if all(is_leftover(path) or path == self._lock.path for path in self.path.iterdir()):
            return
        raise CheckpointError(
            f"The folder {str(self.path)!r} is not empty and has no {manifest}, so it is not that "
            f"of a {self._what}. Name an empty or a new folder."
        )

    def close(self) -> None:
        """Let others use the folder."""
        self._lock.release()

    def __enter__(self) -> "ResumableFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read_manifest(file: Path, error: type[RankscopeError]) -> dict[str, Any]:
    try:
        return read_document(file, error=error)
    except error as reason:
        raise error(f"{reason} Delete the folder to start afresh.") from reason


class _Lock:
    """A file that one process at a time holds, with the number of the process in it."""

    def __init__(self, folder: Path, what: str, *, waits: bool) -> None:
        self.path = folder / f".{what}.lock"
        self._descriptor: int | None = None
        try:
            self._acquire(waits=waits)
        except BlockingIOError as reason:
            raise InUseError(
                f"The folder {str(folder)!r} is in use by {self._holder()}. Wait until that ends, "
                f"or name another folder."
            ) from reason
        except OSError as reason:
            raise OutputError(f"Cannot lock {str(self.path)!r}: {reason.strerror}.") from reason

    def _acquire(self, *, waits: bool) -> None:
        if fcntl is None:
            return
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
                # Whoever held it may have removed the file while we waited for it.
                if self._is_at_path(descriptor):
                    os.ftruncate(descriptor, 0)
                    os.write(
                        descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode()
                    )
                    self._descriptor = descriptor
                    return
            finally:
                if self._descriptor is None:
                    os.close(descriptor)

    def _is_at_path(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _holder(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8") or "another process"
        except (OSError, ValueError):
            return "another process"

    def release(self) -> None:
        if self._descriptor is None:
            return
        try:
            # Removed while it is held, so that nobody loses a lock taken in between.
            if self._is_at_path(self._descriptor):
                self.path.unlink(missing_ok=True)
        finally:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
