"""Folders that runs go on from: whose they are, who uses them, and what a killed process leaves."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch import nn

import rankscope.compression.training.loop as loop
from rankscope.cli.main import main
from rankscope.compression import Recipe, fit_stages, save
from rankscope.errors import CheckpointError, OutputError
from rankscope.lab.experiments import (
    KEPT,
    Entry,
    Experiment,
    Row,
    RunContext,
    RunOptions,
    run_experiment,
)
from rankscope.networks import TensorData
from rankscope.rank import MeasureOptions, Partition, build, measure_rank
from rankscope.resumable import ResumableFolder, require_same
from rankscope.workers import Workers

MANIFEST = "manifest.json"


def claim(path: Path, **identity: object) -> ResumableFolder:
    return ResumableFolder(path, identity, what="test", manifest=MANIFEST)


def names(folder: Path) -> list[str]:
    """Every file and folder inside, at any depth."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_same_run_goes_on_and_another_is_refused_with_what_differs(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    claim(folder, seed=0, left=(0, 2)).close()
    claim(folder, seed=0, left=(0, 2)).close()
    with pytest.raises(CheckpointError, match=r"another test: its seed is 0, not 1. Name another"):
        claim(folder, seed=1, left=(0, 2))
    with pytest.raises(CheckpointError, match="its width is None, not 4"):
        claim(folder, seed=0, left=(0, 2), width=4)
    assert names(folder) == [MANIFEST]


def test_of_long_values_the_part_that_differs_is_shown(tmp_path: Path) -> None:
    recipes = [f"Recipe({'x' * 500}, batch_size={size}, {'y' * 500})" for size in (4, 5)]
    with pytest.raises(CheckpointError, match=r"recipe is …x+, batch_size=4, .*, not …x+.*=5") as e:
        require_same(tmp_path, {"recipe": recipes[0]}, {"recipe": recipes[1]}, what="run")
    assert len(str(e.value)) < 400 + len(str(tmp_path))


def test_a_folder_of_other_things_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    (tmp_path / "notes.json.7.part").touch()
    with pytest.raises(CheckpointError, match=r"is not empty and has no manifest.json, so it is"):
        claim(tmp_path)
    assert names(tmp_path) == ["notes.json.7.part", "thesis.tex"]
    ResumableFolder(tmp_path, {}, what="test", manifest=MANIFEST, is_shared=True).close()
    assert names(tmp_path) == ["manifest.json", "thesis.tex"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not usable JSON"), ("[1]", "holds a list of 1; wanted a JSON object")],
)
def test_a_damaged_manifest_is_refused_with_what_to_do(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(CheckpointError, match=f"{message}.* Delete the folder to start afresh"):
        claim(tmp_path)


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"Cannot make the folder .*inside': Not a dir"):
        claim(tmp_path / "file" / "inside")


def test_a_manifest_may_grow_if_both_agree(tmp_path: Path) -> None:
    def agree(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        return {"seeds": max(found["seeds"], wanted["seeds"])}

    for asked, kept in ((2, 2), (5, 5), (3, 5)):
        ResumableFolder(
            tmp_path, {"seeds": asked}, what="test", manifest=MANIFEST, agree=agree
        ).close()
        assert (tmp_path / MANIFEST).read_text() == f'{{\n "seeds": {kept}\n}}'


# What a process that was killed between writing and renaming leaves: today's, and version 0.1's.
@pytest.mark.parametrize(
    "left", [".rankscope-01234567-0123456789abcdef.tmp", "manifest.json.1.part"]
)
def test_what_a_killed_process_left_does_not_stand_in_the_way(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_bytes(b"half")
    (tmp_path / ".test.lock").write_text("process 1 on this machine")
    claim(tmp_path, seed=0).close()
    assert names(tmp_path) == [MANIFEST]


def test_a_folder_in_use_is_refused_by_name_until_it_is_closed(tmp_path: Path) -> None:
    with claim(tmp_path, seed=0):
        message = rf"{tmp_path.name}' is in use by process {os.getpid()} on .*\. Wait until that"
        with pytest.raises(CheckpointError, match=message):
            claim(tmp_path, seed=0)
    claim(tmp_path, seed=0).close()


def test_a_refusal_leaves_the_folder_free(tmp_path: Path) -> None:
    claim(tmp_path, seed=0).close()
    with pytest.raises(CheckpointError, match="its seed is 0"):
        claim(tmp_path, seed=1)
    claim(tmp_path, seed=0).close()


def test_who_waits_gets_the_folder_when_it_is_closed(tmp_path: Path) -> None:
    first = claim(tmp_path, seed=0)
    seen: list[list[str]] = []

    def wait() -> None:
        ResumableFolder(tmp_path, {}, what="test", waits=True).close()
        seen.append(names(tmp_path))

    second = Thread(target=wait)
    second.start()
    second.join(timeout=0.2)
    assert second.is_alive()
    assert seen == []
    first.close()
    second.join(timeout=60)
    assert seen == [[MANIFEST]]


HOLDER = """
import sys, time
from pathlib import Path
from rankscope.resumable import ResumableFolder
folder = ResumableFolder(Path(sys.argv[1]), {}, what="test", manifest="manifest.json")
print("held", flush=True)
time.sleep(600)
"""


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CheckpointError, match=f"is in use by process {holder.pid} on "):
            claim(tmp_path)
        holder.send_signal(signal.SIGKILL)
    claim(tmp_path).close()
    assert names(tmp_path) == [MANIFEST]


class Killed(BaseException):
    """Stands for the end of the process; nothing that it would do afterwards happens."""


class FileEvents:
    """Counts everything that changes a file or folder, and dies before one of these events."""

    def __init__(self, dies_before: int) -> None:
        self.dies_before = dies_before
        self.seen: list[str] = []

    @property
    def is_dead(self) -> bool:
        return len(self.seen) >= self.dies_before

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("mkdir", "rmdir", "unlink", "replace", "rename", "chmod", "fsync", "write"):
            patch.setattr(os, name, self._wrapped(getattr(os, name), name))
        plain_open, plain_os_open = io.open, os.open

        def opened(file: Any, mode: str = "r", *rest: Any, **others: Any) -> Any:
            if set(mode) & set("wxa+"):
                self._happens(f"open {mode}")
            return plain_open(file, mode, *rest, **others)

        def os_opened(path: Any, flags: int, *rest: Any, **others: Any) -> int:
            if flags & os.O_CREAT:
                self._happens("create")
            return plain_os_open(path, flags, *rest, **others)

        patch.setattr(io, "open", opened)
        patch.setattr(os, "open", os_opened)

    def _wrapped(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **others: Any) -> Any:
            self._happens(name)
            return function(*arguments, **others)

        return wrapper

    def _happens(self, name: str) -> None:
        if self.is_dead:
            raise Killed
        self.seen.append(name)
        if self.is_dead:
            raise Killed


def survives_every_kill(run: Callable[[Path], object], folder: Path, patch: Any) -> int:
    """Kill a run before each of its file events, and let it go on; how many events there are."""
    whole = run(folder / "whole")
    for number in count(1):
        events = FileEvents(number)
        try:
            with patch.context() as inner:
                events.install(inner)
                run(folder / str(number))
        except Killed:
            pass
        if not events.is_dead:
            return number - 1
        again = run(folder / str(number))
        assert again == whole, f"killed before event {number}, {events.seen[-1]}"
        assert names(folder / str(number)) == names(folder / "whole"), events.seen[-1]
    raise AssertionError


@pytest.mark.slow
def test_a_measurement_killed_at_any_file_event_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = build("shallow", {"order": 4, "size": 2, "channels": 3})
    partition = Partition((0, 1), (2, 3))

    def run(folder: Path) -> object:
        options = MeasureOptions(
            primes=(101, 103), checkpoint=folder, workers=Workers("sequential"), is_graded=False
        )
        return measure_rank(network, partition, options).runs

    # The lock, the manifest, and for each prime the folder, the tiles and the finished run.
    assert survives_every_kill(run, tmp_path, monkeypatch) > 20


@pytest.mark.slow
def test_training_killed_at_any_file_event_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)  # after every step
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(6, 4, generator=generator)
    data = TensorData(inputs, torch.randint(3, (6,), generator=generator))

    def run(folder: Path) -> object:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.3))
        recipe = Recipe(epochs=1, batch_size=3)
        history = loop.fit(model, loop.cross_entropy, data, recipe, folder=folder)
        metrics = len((folder / "metrics.jsonl").read_text().splitlines())
        return (
            model.state_dict()["0.weight"].tolist(),
            [one.loss for one in history.records],
            metrics,
        )

    assert survives_every_kill(run, tmp_path, monkeypatch) > 20


@pytest.mark.slow
def test_repairing_killed_at_any_file_event_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = TensorData(torch.randn(4, 3, generator=torch.Generator().manual_seed(1)))

    def run(folder: Path) -> object:
        torch.manual_seed(0)
        reference = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        damaged = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        recipe = Recipe(epochs=1, batch_size=4)
        fit_stages(reference, damaged, data, stages=("0", "1"), recipe=recipe, folder=folder)
        return {name: value.tolist() for name, value in damaged.state_dict().items()}

    assert survives_every_kill(run, tmp_path, monkeypatch) > 20


@dataclass(frozen=True)
class Doubling(Entry):
    """Keeps a file for the results, and one only while it is at work."""

    number: int

    @property
    def name(self) -> str:
        return f"entry-{self.number}"

    def run(self, place: RunContext) -> Row:
        (place.folder / "work.txt").write_text("half")
        kept = place.folder / KEPT
        kept.mkdir(exist_ok=True)
        (kept / "kept.txt").write_text("whole")
        return {"double": 2 * self.number}


@pytest.mark.slow
def test_an_experiment_killed_at_any_file_event_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment("doubling", "Doubles", (Doubling(1),))

    def run(folder: Path) -> object:
        return run_experiment(experiment, folder, RunOptions()).rows

    assert survives_every_kill(run, tmp_path, monkeypatch) > 20


def test_a_run_that_another_process_computes_is_refused_by_name(tmp_path: Path) -> None:
    experiment = Experiment("doubling", "Doubles", (Doubling(1), Doubling(2)))
    with ResumableFolder(tmp_path / "work" / "entry-1", {}, what="run"):
        run_experiment(experiment, tmp_path, RunOptions(only=("entry-2",)))
        with pytest.raises(CheckpointError, match="work/entry-1' is in use by process"):
            run_experiment(experiment, tmp_path, RunOptions())
    assert len(run_experiment(experiment, tmp_path, RunOptions()).rows) == 2


# --- Commands that write their result at the end --------------------------------------------------


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "fewest_events"),
    [
        ("rank shallow --order 4 --size 2 --channels 2 --certificate OUT/certificate.json", 4),
        ("plan --params 1e8 -o OUT/plan.svg", 4),
        ("draw cp -o OUT/cp.tikz", 4),
        ("code cp --set order=3 --set size=2 --set rank=2 -o OUT/cp.py", 4),
        ("audit CONFIGURATION -o OUT/audit", 12),
    ],
)
def test_a_command_killed_at_any_file_event_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, fewest_events: int
) -> None:
    def run(folder: Path) -> object:
        folder.mkdir(exist_ok=True)
        command_here = command.replace("CONFIGURATION", str(tmp_path / "config.json"))
        words = command_here.replace("OUT", str(folder)).split()
        with patched_out(monkeypatch):
            assert main(words) == 0
        return bytes_in(folder)

    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 4, "vocab_size": 9}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    (tmp_path / "here").mkdir()
    assert survives_every_kill(run, tmp_path / "here", monkeypatch) >= fewest_events


@contextmanager
def patched_out(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder made before a run is no event of it."""
    with patch.context() as inner:
        inner.setattr(sys, "stdout", io.StringIO())
        yield


@pytest.mark.slow
def test_saving_a_model_killed_at_any_file_event_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    dense = nn.Linear(6, 5)
    with torch.no_grad():
        for weight in dense.parameters():
            weight.normal_(generator=generator)

    def run(folder: Path) -> object:
        save(dense, folder / "model", dense=dense)
        save(dense, folder / "model", dense=dense)  # over the first
        return bytes_in(folder)

    assert survives_every_kill(run, tmp_path, monkeypatch) > 20
