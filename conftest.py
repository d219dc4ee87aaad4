"""Fixtures for tests, doctests and the README alike."""

import gc
import itertools
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from _pytest.doctest import DoctestModule
from hypothesis import settings

# The most examples that a property is tried on. Tests say their own number where it is other than
# hypothesis's 100; only `thorough` tries as many. Every run draws other examples.
MOST_EXAMPLES = {"quick": 5, "usual": 20, "thorough": 10_000}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "usual")
# The mark `slow` is for tests that take longer than this with the profile `quick`, in seconds of
# processor time: `make check` leaves them out.
SLOW = 0.5

settings.register_profile(PROFILE, deadline=None, database=None)
settings.load_profile(PROFILE)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Try properties on no more examples than the profile says; `quick`: tables on one case."""
    if PROFILE == "quick":
        first = {item.nodeid.split("[")[0]: item for item in reversed(items)}
        config.hook.pytest_deselected(
            items=[item for item in items if first[item.nodeid.split("[")[0]] is not item]
        )
        items[:] = [item for item in items if first[item.nodeid.split("[")[0]] is item]
    for item in items:
        test = getattr(item, "obj", None)
        own = getattr(test, "_hypothesis_internal_use_settings", None)
        if own is not None and own.max_examples > MOST_EXAMPLES[PROFILE]:
            fewer = settings(own, max_examples=MOST_EXAMPLES[PROFILE])
            setattr(test, "_hypothesis_internal_use_settings", fewer)  # noqa: B010


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in sources and pages only: test files have none."""
    collected = yield
    is_test = Path(__file__).parent / "tests" in file_path.parents
    return [each for each in collected if not (is_test and isinstance(each, DoctestModule))]


def pytest_collection_finish() -> None:
    """Keep the search for garbage from visiting all that was imported again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # 8 % less processor time, 5 % more memory


@pytest.fixture(autouse=True, scope="session")
def _no_width() -> None:
    """Commands print as into a pipe: pytest-xdist gives its workers a width, which would wrap."""
    os.environ.pop("COLUMNS", None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Note the processor time of a test and of its children."""
    began = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        item.user_properties.append(("processor seconds", sum(os.times()[:4]) - began))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what should be marked slow, from twice the limit on: some are the first to import."""
    if PROFILE != "quick":
        return
    for report in terminalreporter.getreports("passed"):
        seconds = dict(report.user_properties).get("processor seconds", 0.0)
        if report.when == "call" and seconds > 2 * SLOW and "slow" not in report.keywords:
            terminalreporter.write_line(f"not marked slow: {seconds:.1f} s {report.nodeid}")


@pytest.fixture(scope="session")
def _empty_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders that do not exist yet; pytest's own take a millisecond each."""
    base = tmp_path_factory.mktemp("empty")
    return (base / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _in_an_empty_folder(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _empty_folders: Iterator[Path]
) -> None:
    """Whatever an example writes, it writes into a folder of its own."""
    if "tmp_path" in request.fixturenames:
        folder: Path = request.getfixturevalue("tmp_path")
    else:
        folder = next(_empty_folders)
        folder.mkdir()
    monkeypatch.chdir(folder)


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    """Weights that a test draws are the same every time, in whatever order tests run."""
    torch.manual_seed(0)


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
