"""What a row was computed with: versions, the commit, the machine."""

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import torch

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


def merged(environments: Sequence[Environment]) -> Environment:
    """One environment for many: a list where they differ.

    Example:
        >>> merged([{"threads": 1, "commit": "a"}, {"threads": 1, "commit": "b"}])
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
