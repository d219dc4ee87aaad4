"""Fixtures for tests, doctests and the README alike."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# How many examples a property is tried on, unless it says its own number: HYPOTHESIS_PROFILE.
settings.register_profile("usual", deadline=None, max_examples=25, database=None)
settings.register_profile("thorough", settings.get_profile("usual"), max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))


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


@pytest.fixture
def compilable(pytestconfig: pytest.Config) -> None:
    """The compiler cannot read run-time type checks: skipped in the pass that has them."""
    if pytestconfig.getoption("jaxtyping_packages", None):
        pytest.skip("torch.compile cannot read run-time type checks")
