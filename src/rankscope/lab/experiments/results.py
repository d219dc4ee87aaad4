"""The folder of an experiment: one JSON file for each finished row."""

import json
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from rankscope.compression.training.recipe import has_bfloat16_units
from rankscope.errors import ExperimentError, InUseError
from rankscope.files import make_folder, remove_leftovers, write_atomically
from rankscope.lab.experiments.experiment import KEPT, Row, Run
from rankscope.resumable import ResumableFolder, difference
from rankscope.strict_json import (
    Flag,
    Integer,
    Number,
    Optional,
    Record,
    Text,
    read_as,
    read_document,
)

# --- What a row was computed with: versions, the commit, the machine ------------------------------


_PACKAGES = ("rankscope", "torch", "numpy", "scipy")

Environment = dict[str, object]


def environment() -> Environment:
    """Versions, commit, machine and threads of this process.

    Example:
        >>> sorted(environment())
        ['commit', 'machine', 'threads', 'versions']
    """
    return {
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
        "commit": commit_of(Path(__file__).parent),
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "bfloat16 units": has_bfloat16_units(torch.device("cpu")),
        },
        "threads": torch.get_num_threads(),
    }


def commit_of(folder: Path) -> str | None:
    """The commit a folder was checked out from, "+" if files there were changed; None if none."""
    # Installed packages may lie inside a repository that has nothing to do with them.
    if not _git(folder, "ls-files", "."):
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", ".")
    return f"{commit}+" if changed else commit


def merge_environments(environments: Sequence[Environment]) -> Environment:
    """One environment for many: a list where they differ.

    Example:
        >>> merge_environments([{"threads": 1, "commit": "a"}, {"threads": 1, "commit": "b"}])
        {'threads': 1, 'commit': ['a', 'b']}
    """
    results: Environment = {}
    for name in dict.fromkeys(name for one in environments for name in one):
        values: list[object] = []
        for one in environments:
            if name in one and one[name] not in values:
                values.append(one[name])
        results[name] = values[0] if len(values) == 1 else values
    return results


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ("git", "-C", str(folder), *arguments), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


MANIFEST = "experiment.json"
ENTRIES, _WORK = "entries", "work"


@dataclass(frozen=True)
class Manifest:
    """The experiment and settings that a folder of results belongs to.

    Args:
        experiment: its name.
        seconds: that every entry may take.
        quick: whether the entries are the quick ones.
        seeds: how many were asked for; None if there are none.
    """

    experiment: str
    seconds: float
    quick: bool = False
    seeds: int | None = None


_MANIFEST = Record(
    Manifest,
    {"experiment": Text(), "seconds": Number(), "quick": Flag(), "seeds": Optional(Integer(1))},
)


@dataclass(frozen=True)
class Finished:
    """One finished row.

    Args:
        run: the name of its file.
        setting: the name of the entry.
        seed: of the run; None if it has none.
        row: what the entry computed.
        seconds: working seconds of the process that finished it.
        environment: what it was computed with.
        settings: what it was computed from, see `Run.settings`; None if it was not written down.
    """

    run: str
    setting: str
    seed: int | None
    row: Row
    seconds: float
    environment: Environment
    settings: str | None = None

    @property
    def full_row(self) -> Row:
        """The row, and whose it is."""
        return {"entry": self.run, "setting": self.setting, "seed": self.seed, **self.row}


class ResultsFolder:
    """The folder of one run of an experiment.

    Args:
        path: created if it is not there.
        manifest: a folder goes on with the same only, except that seeds may be added.

    Raises:
        ExperimentError: if the folder belongs to something else.
        OutputError: if it cannot be written.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        # Only while it is written down: processes may share the folder if their runs differ.
        with ResumableFolder(
            path,
            asdict(manifest),
            what="experiment",
            manifest=MANIFEST,
            is_shared=True,
            waits=True,
            agree=self._agree,
            error=ExperimentError,
        ):
            make_folder(path / ENTRIES)

    def _agree(self, recorded: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        """The same but for the number of seeds, which may grow."""
        old, new = _as_manifest(self.path, recorded), _as_manifest(self.path, wanted)
        require_same_manifest(self.path, old, new)
        agreed = asdict(replace(new, seeds=_most(old.seeds, new.seeds)))
        return recorded if agreed == asdict(old) else agreed

    def work(self, run: Run) -> Path:
        """The folder in which a run keeps unfinished work."""
        return self.path / _WORK / run.name

    def is_finished(self, run: Run) -> bool:
        """Whether the row of a run is there.

        Raises:
            ExperimentError: if its file is damaged, or holds the row of other settings.
        """
        finished = read_finished(self.path, run.name)
        if finished is not None:
            require_same_settings(self.path, finished, run)
        return finished is not None

    def computing(self, run: Run) -> ResumableFolder:
        """The folder in which a run is computed, for this process alone.

        Raises:
            InUseError: if another process computes the same run.
        """
        return ResumableFolder(self.work(run), {}, what="run")

    def clear(self, run: Run) -> None:
        """Remove what a process left that was killed after it had written its row."""
        if self.work(run).is_dir():
            # A process that is still at work there clears up itself.
            with suppress(InUseError), self.computing(run) as work:
                shutil.rmtree(work.path)

    def finish(self, run: Run, row: Row, seconds: float) -> None:
        """Write the row of a run with what it was computed with, and clear up after it.

        Raises:
            ExperimentError: if one of its numbers is not finite.
        """
        for column, value in row.items():
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, float) and not math.isfinite(number):
                    raise ExperimentError(f"{run.name}: {column} is {number}, which is no result.")
        document = {
            "entry": run.name,
            "setting": run.entry.name,
            "seed": run.seed,
            "row": row,
            "seconds": seconds,
            "environment": environment(),
            "settings": run.settings,
        }
        work, kept = self.work(run), self.path / KEPT / run.name
        if (work / KEPT).is_dir():
            shutil.rmtree(kept, ignore_errors=True)
            make_folder(kept.parent)
            (work / KEPT).rename(kept)
        entry = self.path / ENTRIES / f"{run.name}.json"
        remove_leftovers(entry.parent, of=entry.name)
        write_atomically(entry, _json(document))
        shutil.rmtree(work)


def read_manifest(folder: Path) -> Manifest:
    """The experiment and settings that a folder of results belongs to.

    Raises:
        ExperimentError: if it is none of an experiment.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ExperimentError(f"{str(folder)!r} is no folder of an experiment: no {MANIFEST}.")
    return _as_manifest(folder, read_document(path, error=ExperimentError))


def _as_manifest(folder: Path, document: object) -> Manifest:
    return read_as(_MANIFEST, document, who=str(folder / MANIFEST), error=ExperimentError)


def read_finished(folder: Path, run: str) -> Finished | None:
    """The row of a run, by name; None if it is not finished.

    Raises:
        ExperimentError: if the file is damaged.
    """
    path = folder / ENTRIES / f"{run}.json"
    if not path.is_file():
        return None
    document = read_document(path, error=ExperimentError)
    row, seed = document.get("row"), document.get("seed")
    if not isinstance(row, dict) or not all(_is_value(value) for value in row.values()):
        raise ExperimentError(f"{path} is damaged: it holds no row. Delete it to compute it again.")
    # Files of version 0.1.0 have a machine, no environment, and their seconds in the row.
    known = document.get("environment", {"machine": document.get("machine")})
    seconds = document.get("seconds", row.get("seconds"))
    return Finished(
        run,
        str(document.get("setting", run)),
        seed if isinstance(seed, int) else None,
        row,
        float(seconds) if isinstance(seconds, int | float) else 0.0,
        known if isinstance(known, dict) else {},
        settings if isinstance(settings := document.get("settings"), str) else None,
    )


def _is_value(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(number, int | float) for number in value)
    return value is None or isinstance(value, str | int | float)


def require_same_manifest(path: Path, recorded: Manifest, wanted: Manifest) -> None:
    """Refuse to go on in a folder with another experiment, other seconds or other entries.

    Raises:
        ExperimentError: if the two differ in more than the number of seeds.
    """
    if recorded.experiment != wanted.experiment:
        raise ExperimentError(
            f"{str(path)!r} is the folder of {recorded.experiment}, not of {wanted.experiment}. "
            f"Name another folder."
        )
    if (recorded.quick, recorded.seeds is None) != (wanted.quick, wanted.seeds is None):
        raise ExperimentError(
            f"{str(path)!r} was begun {_describe_manifest(recorded)}, not "
            f"{_describe_manifest(wanted)}. Ask for the same, or name another folder."
        )
    if recorded.seconds != wanted.seconds:
        raise ExperimentError(
            f"{str(path)!r} was begun with {recorded.seconds:g} seconds for each entry, not "
            f"{wanted.seconds:g}: rows would not compare. Ask for the same, or name another folder."
        )


def require_same_settings(path: Path, finished: Finished, run: Run) -> None:
    """Refuse the row of a run that was computed from something else.

    Raises:
        ExperimentError: if its settings were written down and are others.
    """
    if finished.settings not in (None, run.settings):
        one, other = difference(str(finished.settings), run.settings)
        raise ExperimentError(
            f"{str(path)!r} holds {run.name} of another version of the experiment: {one} where it "
            f"is now {other}. Name another folder."
        )


def _describe_manifest(manifest: Manifest) -> str:
    quick = "with" if manifest.quick else "without"
    return f"{quick} --quick and with {manifest.seeds or 'no'} seeds"


def _most(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, indent=1, allow_nan=False).encode()
