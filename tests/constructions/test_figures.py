import sys
from pathlib import Path
from typing import Any

import pytest

from rankscope.constructions.figures import save_figure
from rankscope.errors import MissingExtraError, OutputError


def line(figure: Any) -> None:
    figure.add_subplot().plot([0, 1], [0, 1])


@pytest.mark.parametrize(
    ("name", "start"), [("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.png", b"\x89PNG")]
)
def test_the_same_figure_gives_the_same_bytes(tmp_path: Path, name: str, start: bytes) -> None:
    first = save_figure(tmp_path / name, line, size=(2.0, 2.0)).read_bytes()
    second = save_figure(tmp_path / name, line, size=(2.0, 2.0)).read_bytes()
    assert first == second
    assert first.startswith(start)


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"are .svg, .pdf, .png, got 'a.gif'"):
        save_figure(tmp_path / "a.gif", line, size=(2.0, 2.0))


def test_a_missing_matplotlib_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"needs matplotlib.*rankscope\[draw\]"):
        save_figure(tmp_path / "a.svg", line, size=(2.0, 2.0))
