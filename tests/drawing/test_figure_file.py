import sys
from pathlib import Path
from typing import Any

import pytest

from rankscope.drawing import write_figure
from rankscope.errors import MissingExtraError, OutputError


def line() -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.0, 2.0))
    figure.add_subplot().plot([0, 1], [0, 1])
    return figure


@pytest.mark.parametrize(
    ("name", "start"), [("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.png", b"\x89PNG")]
)
def test_the_ending_chooses_the_format_and_the_bytes_repeat(
    tmp_path: Path, name: str, start: bytes
) -> None:
    first = write_figure(tmp_path / name, line).read_bytes()
    assert write_figure(str(tmp_path / name), line).read_bytes() == first
    assert first.startswith(start)


def test_settings_hold_while_it_is_drawn_and_not_longer(tmp_path: Path) -> None:
    import matplotlib as mpl

    seen = []

    def make() -> Any:
        seen.append(mpl.rcParams["axes.spines.top"])
        return line()

    before = dict(mpl.rcParams)
    write_figure(tmp_path / "a.svg", make)
    assert seen == [False]
    assert dict(mpl.rcParams) == before


def test_another_ending_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(
        OutputError, match=r"^Drawing a plan writes .svg, .pdf, .png, got 'a.gif'; choose"
    ):
        write_figure(tmp_path / "a.gif", lambda: pytest.fail("drawn"), what="a plan")
    assert not list(tmp_path.iterdir())


def test_a_missing_matplotlib_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        MissingExtraError, match=r"Drawing a figure needs matplotlib.*rankscope\[draw\]"
    ):
        write_figure(tmp_path / "a.svg", line)
