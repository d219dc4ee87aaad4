"""Fixtures for tests, doctests and the README alike."""

from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an example writes, it writes into a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test downloads a data set."""
    monkeypatch.setenv("RANKSCOPE_OFFLINE", "1")


@pytest.fixture
def generator() -> torch.Generator:
    """Randomness that is the same every time."""
    return torch.Generator().manual_seed(0)
