"""The notebooks: docs/notebooks/NAME.py, cell by cell, executed and written as NAME.ipynb.

Usage: python docs/make_notebooks.py [NAME …]

A source is a Python file with cells after `# %%` (code) and `# %% [markdown]` (text), as editors
know them. Everything in a notebook is computed by this command; nothing is fetched.
"""

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "notebooks"
CELL = re.compile(r"^# %%(?P<kind> \[markdown\])?\n", re.MULTILINE)


def cells(source: str) -> list[tuple[str, str]]:
    """Kind ("markdown" or "code") and text of every cell."""
    parts = CELL.split(source)[1:]
    found = []
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        body = text.strip("\n")
        if kind:
            body = "\n".join(re.sub(r"^# ?", "", line) for line in body.splitlines())
        found.append(("markdown" if kind else "code", body))
    return found


def notebook(source: str) -> Any:
    """The notebook without outputs; the same source gives the same bytes."""
    made = nbformat.v4.new_notebook()
    for number, (kind, text) in enumerate(cells(source)):
        new = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
        made.cells.append(new(text, id=f"cell-{number}"))
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return made


def execute(path: Path) -> None:
    """Run a source and write its notebook beside it."""
    made = notebook(path.read_text(encoding="utf-8"))
    NotebookClient(made, timeout=300, kernel_name="python3").execute()
    for cell in made.cells:
        cell.metadata = {}  # times of execution, which differ from run to run
    nbformat.write(made, path.with_suffix(".ipynb"))
    print(path.with_suffix(".ipynb"))


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.py")):
        execute(FOLDER / f"{name}.py")
