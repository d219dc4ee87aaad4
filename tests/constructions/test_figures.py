from pathlib import Path
from typing import Any

import pytest

from rankscope.constructions.pictures import save_figure
from rankscope.errors import OutputError


def line(figure: Any) -> None:
    assert figure.get_size_inches().tolist() == [2.0, 3.0]
    figure.add_subplot().plot([0, 1], [0, 1])


def test_a_figure_of_the_size_asked_for_is_filled_and_written(tmp_path: Path) -> None:
    assert save_figure(tmp_path / "a.svg", line, size=(2.0, 3.0)).read_bytes().startswith(b"<?xml")


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"a construction writes .svg, .pdf, .png, got 'a.gif'"):
        save_figure(tmp_path / "a.gif", line, size=(2.0, 3.0))
