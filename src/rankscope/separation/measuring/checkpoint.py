"""A folder that holds what an interrupted measurement has computed, so that it can go on.

Each file ends with the SHA-256 of what comes before, so that a damaged one is noticed and computed
again. Nothing is ever unpickled.
"""

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy

from rankscope.errors import CheckpointError
from rankscope.files import make_folder, remove_leftovers, write_atomically
from rankscope.resumable import ResumableFolder
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
        CheckpointError: if the folder belongs to something else, or is in use.
        OutputError: if it cannot be written.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, object], on_damage: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._on_damage = on_damage
        self._claim = ResumableFolder(folder, identity, what="measurement", manifest=_MANIFEST)

    def close(self) -> None:
        """Let others use the folder."""
        self._claim.close()

    def tiles(self, prime: int) -> "TilesInFolder":
        """Where the tiles of the run modulo a prime are kept."""
        folder = self.folder / f"prime {prime}"
        make_folder(folder)
        remove_leftovers(folder)
        return TilesInFolder(folder, self._on_damage)

    def finish(self, run: Run) -> None:
        """Record a run, and drop its tiles: nothing needs them any more."""
        _write_sealed(self._run_path(run.prime), json.dumps(asdict(run)).encode())
        self._drop_tiles(run.prime)

    def finished(self, prime: int) -> Run | None:
        """The run modulo a prime, if it was recorded."""
        data = _read_sealed(self._run_path(prime), self._on_damage)
        if data is None:
            return None
        self._drop_tiles(prime)  # if the process was killed before it had dropped them all
        plain = json.loads(data)
        minors = [
            Minor(item["grade"], tuple(item["rows"]), tuple(item["columns"]), item["upper"])
            for item in plain["minors"]
        ]
        return Run(plain["prime"], plain["seed"], tuple(minors), tuple(plain["samples"]))

    def _drop_tiles(self, prime: int) -> None:
        folder = self.folder / f"prime {prime}"
        if folder.is_dir():
            shutil.rmtree(folder)

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


def _write_sealed(path: Path, data: bytes) -> None:
    # Not waiting for the disk: the digest tells if the power failed before the data were there.
    write_atomically(path, data + hashlib.sha256(data).digest(), is_synced=False)


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
