import json
from pathlib import Path

import numpy
import pytest

from rankscope.errors import CheckpointError, OutputError
from rankscope.rank import Minor, Run, Tile
from rankscope.rank.measurement import Checkpoint

IDENTITY: dict[str, object] = {"family": "attention", "seed": 0, "left": (0, 2)}
TILE = Tile((0, 2), (3, 4), (0, 1))
PARTS = numpy.array([[[1], [2]], [[3], [2**31 - 2]]], dtype=numpy.int32)
RUN = Run(101, 0, (Minor(0, (1, 3), (0, 2), 5), Minor(1, (), (), None)), (64, 32))


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is not damaged")


def test_tiles_and_runs_come_back_from_the_same_folder(tmp_path: Path) -> None:
    first = Checkpoint(tmp_path / "new" / "folder", IDENTITY, refuse)
    assert not first.tiles(101).has(TILE)
    assert first.finished(101) is None
    first.tiles(101).put(TILE, PARTS)
    first.close()
    second = Checkpoint(tmp_path / "new" / "folder", IDENTITY, refuse)
    assert second.tiles(101).has(TILE)
    assert not second.tiles(103).has(TILE)
    assert second.tiles(101).get(TILE).tolist() == PARTS.tolist()
    second.finish(RUN)
    second.close()
    third = Checkpoint(tmp_path / "new" / "folder", IDENTITY, refuse)
    assert third.finished(101) == RUN
    assert not third.tiles(101).has(TILE)  # a finished run needs them no more


def test_tiles_are_plain_numpy_files(tmp_path: Path) -> None:
    Checkpoint(tmp_path, IDENTITY, refuse).tiles(101).put(TILE, PARTS)
    (path,) = tmp_path.rglob("*.npy")
    assert numpy.load(path, allow_pickle=False).tolist() == PARTS.tolist()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_tile_is_noticed_and_dropped(tmp_path: Path, damage: str) -> None:
    damaged: list[str] = []
    tiles = Checkpoint(tmp_path, IDENTITY, damaged.append).tiles(101)
    tiles.put(TILE, PARTS)
    (path,) = tmp_path.rglob("*.npy")
    data = path.read_bytes()
    flipped = data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]
    path.write_bytes({"truncated": data[:-5], "flipped": flipped, "empty": b""}[damage])
    assert not tiles.has(TILE)
    assert damaged == [path.name]
    assert not path.exists()


def test_a_tile_that_vanishes_while_in_use_is_an_error(tmp_path: Path) -> None:
    tiles = Checkpoint(tmp_path, IDENTITY, refuse).tiles(101)
    with pytest.raises(CheckpointError, match=r"rows 0-2 columns 3-4 matrices 3.npy' was removed"):
        tiles.get(TILE)


def test_another_measurement_is_refused_with_what_differs(tmp_path: Path) -> None:
    Checkpoint(tmp_path, IDENTITY, refuse).close()
    with pytest.raises(CheckpointError, match=r"its seed is 0, not 1. Name another folder"):
        Checkpoint(tmp_path, {**IDENTITY, "seed": 1}, refuse)
    with pytest.raises(CheckpointError, match="its width is None, not 4"):
        Checkpoint(tmp_path, {**IDENTITY, "width": 4}, refuse)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(CheckpointError, match=r"not empty and has no manifest.json"):
        Checkpoint(tmp_path, IDENTITY, refuse)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not usable JSON"), ("[1]", "holds a list of 1; wanted a JSON")],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(tmp_path, IDENTITY, refuse)


def test_the_manifest_says_what_is_measured(tmp_path: Path) -> None:
    Checkpoint(tmp_path, IDENTITY, refuse)
    plain = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert plain == {"family": "attention", "seed": 0, "left": [0, 2]}


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"Cannot make the folder .*file/inside'"):
        Checkpoint(tmp_path / "file" / "inside", IDENTITY, refuse)


def test_a_tile_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    tiles = Checkpoint(tmp_path, IDENTITY, refuse).tiles(101)
    (tmp_path / "prime 101" / f"{TILE.name}.npy").mkdir()
    with pytest.raises(OutputError, match=r"Cannot write .*: it is a folder"):
        tiles.put(TILE, PARTS)
    assert len(list((tmp_path / "prime 101").iterdir())) == 1
