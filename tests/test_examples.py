"""The examples run."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_the_tour_makes_its_pictures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["tour.py", "pictures"])
    runpy.run_path(str(EXAMPLES / "tour.py"), run_name="__main__")
    printed = capsys.readouterr().out
    names = sorted(path.name for path in Path("pictures").iterdir())
    assert len(names) == 12
    assert all(name in printed for name in names)
    assert "2,359,296" in printed
