"""The campaign's own oracle: it must see every kind of fault that it is there for."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fuzz.case import Case, read_corpus
from fuzz.worker import Judge


@pytest.fixture
def judge() -> Iterator[Judge]:
    before = signal.getsignal(signal.SIGPROF)
    yield Judge()
    signal.signal(signal.SIGPROF, before)


def fails(text: str, code: int = 2) -> Callable[[list[str]], int]:
    def main(_: list[str]) -> int:
        sys.stderr.write(text)
        return code

    return main


def prints(text: str, code: int = 0) -> Callable[[list[str]], int]:
    def main(_: list[str]) -> int:
        sys.stdout.write(text)
        return code

    return main


def writes(name: str) -> Callable[[list[str]], int]:
    def main(_: list[str]) -> int:
        Path(name).write_text("half")
        return fails("rankscope: no\n")([])

    return main


def raises(_: list[str]) -> int:
    raise ZeroDivisionError


def runs(_: list[str]) -> int:
    os.system("true")
    return 0


@pytest.mark.parametrize(
    ("main", "complaint"),
    [
        (prints("fine\n"), ""),
        (fails("rankscope: no\n"), ""),
        (fails("rankscope: no\n", code=1), "exit 1"),
        (fails("Traceback (most recent call last):\n"), "no single line"),
        (fails("rankscope: one\ntwo\n"), "no single line"),
        (fails("a warning\n", code=0), "noise on standard error"),
        (prints("\x1b[2J"), "control characters"),
        (prints("half an answer", code=2), "no single line"),
        (writes("x.part"), "written on failure: ['x.part']"),
        (raises, "ZeroDivisionError"),
        (runs, "os.system"),
    ],
)
def test_every_kind_of_fault_is_seen(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, main: Callable[..., int], complaint: str
) -> None:
    monkeypatch.setattr("rankscope.cli.main.main", main)
    found = judge.complaint(Case("case", ("audit", "x"), {"x": b"x"}))
    assert complaint in found
    assert bool(complaint) == bool(found)


def test_the_corpus_can_be_read_and_is_small() -> None:
    cases = read_corpus()
    assert len(cases) >= 20
    for case in cases:
        assert Case.from_json(case.name, case.to_json()) == case
        assert len(case.to_json()) < 10_000
