"""What rows were computed with."""

import subprocess
from pathlib import Path

import torch

from rankscope.experiments.environment import commit_of, environment, merged


def git(folder: Path, *arguments: str) -> str:
    name = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *name, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_environment_names_versions_and_threads() -> None:
    found = environment()
    versions = found["versions"]
    assert isinstance(versions, dict)
    assert versions["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()


def test_a_commit_is_marked_when_its_files_were_changed(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    (tmp_path / "code").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "code" / "a.py").write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert commit_of(tmp_path / "code") == commit
    # A folder of the repository that holds none of its files, as installed packages.
    assert commit_of(tmp_path / "other") is None
    (tmp_path / "code" / "a.py").write_text("2")
    assert commit_of(tmp_path / "code") == f"{commit}+"


def test_without_git_there_is_no_commit(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "absent") is None


def test_what_differs_is_listed_once() -> None:
    assert merged([{"a": 1, "b": [2]}, {"a": 1, "b": [3]}, {"b": [2]}]) == {
        "a": 1,
        "b": [[2], [3]],
    }
    assert merged([]) == {}
