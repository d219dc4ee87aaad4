"""A folder that holds what an interrupted measurement has computed, so that it can go on.

Files are written beside and renamed, so that a file under its own name is whole; each ends with
the SHA-256 of what comes before, so that a damaged one is noticed and computed again. Nothing is
ever unpickled.
"""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy

from rankscope.errors import CheckpointError, OutputError
from rankscope.separation.measuring.measured import Minor, Run
from rankscope.separation.measuring.tiles import Parts, Tile, TileStore

_MANIFEST = "manifest.json"
_DIGEST_BYTES = 32


class Checkpoint:
    """The folder of one measurement.

    Args:
        folder: created if it is not there.
        identity: plain data that says what is measured; a folder goes on with the same only.
        on_damage: told the name of each file that has to be computed again.

    Raises:
        CheckpointError: if the folder belongs to something else.
        OutputError: if it cannot be written.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, object], on_damage: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._on_damage = on_damage
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"Cannot create {str(folder)!r}: {error.strerror}.") from error
        plain = json.loads(json.dumps(identity))
        manifest = folder / _MANIFEST
        if manifest.is_file():
            _require_same(manifest, plain)
        elif any(folder.iterdir()):
            raise CheckpointError(
                f"The folder {str(folder)!r} is not empty and has no {_MANIFEST}, so it is no "
                f"checkpoint. Name an empty or a new folder."
            )
        else:
            _write(manifest, json.dumps(plain, indent=1).encode())

    def tiles(self, prime: int) -> "TilesInFolder":
        """Where the tiles of the run modulo a prime are kept."""
        folder = self.folder / f"prime {prime}"
        folder.mkdir(exist_ok=True)
        return TilesInFolder(folder, self._on_damage)

    def finish(self, run: Run) -> None:
        """Record a run, and drop its tiles: nothing needs them any more."""
        _write_sealed(self._run_path(run.prime), json.dumps(asdict(run)).encode())
        shutil.rmtree(self.folder / f"prime {run.prime}")

    def finished(self, prime: int) -> Run | None:
        """The run modulo a prime, if it was recorded."""
        data = _read_sealed(self._run_path(prime), self._on_damage)
        if data is None:
            return None
        plain = json.loads(data)
        minors = [
            Minor(item["grade"], tuple(item["rows"]), tuple(item["columns"]), item["upper"])
            for item in plain["minors"]
        ]
        return Run(plain["prime"], plain["seed"], tuple(minors), tuple(plain["samples"]))

    def _run_path(self, prime: int) -> Path:
        return self.folder / f"run {prime}.json.sealed"


class TilesInFolder(TileStore):
    """Keeps each tile as an .npy file of its own, so that memory holds none of them."""

    def __init__(self, folder: Path, on_damage: Callable[[str], None]) -> None:
        self._folder = folder
        self._on_damage = on_damage

    def has(self, tile: Tile) -> bool:
        return _read_sealed(self._path(tile), self._on_damage) is not None

    def put(self, tile: Tile, parts: Parts) -> None:
        buffer = io.BytesIO()
        numpy.save(buffer, parts, allow_pickle=False)
        _write_sealed(self._path(tile), buffer.getvalue())

    def get(self, tile: Tile) -> Parts:
        path = self._path(tile)
        data = _read_sealed(path, self._on_damage)
        if data is None:
            raise CheckpointError(
                f"{str(path)!r} was removed or damaged while it was in use. Start again: "
                f"the other tiles are kept."
            )
        parts: Parts = numpy.load(io.BytesIO(data), allow_pickle=False)
        return parts

    def _path(self, tile: Tile) -> Path:
        return self._folder / f"{tile.name}.npy"


def _require_same(manifest: Path, identity: dict[str, object]) -> None:
    try:
        found = json.loads(manifest.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{str(manifest)!r} cannot be read: {error}. Delete the folder to start afresh."
        ) from error
    if found == identity:
        return
    keys = sorted({*identity, *found}) if isinstance(found, dict) else []
    differing = next((key for key in keys if found.get(key) != identity.get(key)), None)
    detail = (
        "it is of another kind"
        if differing is None
        else f"its {differing} is {found.get(differing)}, not {identity.get(differing)}"
    )
    raise CheckpointError(
        f"The checkpoint {str(manifest.parent)!r} belongs to another measurement: {detail}. "
        f"Name another folder, or ask for the same measurement."
    )


def _write_sealed(path: Path, data: bytes) -> None:
    _write(path, data + hashlib.sha256(data).digest())


def _read_sealed(path: Path, on_damage: Callable[[str], None]) -> bytes | None:
    """What was written, or None if there is nothing or it is damaged."""
    if not path.is_file():
        return None
    data = path.read_bytes()
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() == digest:
        return body
    on_damage(path.name)
    path.unlink()
    return None


def _write(path: Path, data: bytes) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OutputError(f"Cannot write {str(path)!r}: {error.strerror}.") from error
