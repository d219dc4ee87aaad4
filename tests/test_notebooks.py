"""The notebooks: what is committed is what the sources say, ran without errors, and still runs."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed: pip install 'rankscope[dev]'")

DOCS = Path(__file__).parents[1] / "docs"
SOURCES = sorted((DOCS / "notebooks").glob("*.py"))
LARGEST = 120_000  # bytes


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_notebooks", DOCS / "make_notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def committed(source: Path) -> Any:
    return json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))


def test_there_are_three() -> None:
    assert [path.stem for path in SOURCES] == [
        "draw_your_network",
        "measure_an_architecture",
        "shrink_a_language_model",
    ]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_notebook_is_that_of_the_source(source: Path) -> None:
    """`make notebooks` writes it again."""
    document = committed(source)
    cells = script().cells(source.read_text(encoding="utf-8"))
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in document["cells"]] == cells
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert source.with_suffix(".ipynb").stat().st_size < LARGEST


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_source_runs_and_prints_what_the_notebook_shows(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(source.read_text(encoding="utf-8"), source.name, "exec"), {})
    printed = capsys.readouterr().out
    shown = [
        "".join(output["text"])
        for cell in committed(source)["cells"]
        for output in cell.get("outputs", ())
        if output["output_type"] == "stream"
    ]
    assert printed == "".join(shown)
