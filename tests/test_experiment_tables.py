"""The tables in the pages are those of the committed results."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
specification = importlib.util.spec_from_file_location(
    "make_experiment_tables", DOCS / "make_experiment_tables.py"
)
assert specification is not None
assert specification.loader is not None
tables = importlib.util.module_from_spec(specification)
specification.loader.exec_module(tables)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_a_page_shows_the_results_as_they_are(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "run `make experiment-tables`"


def test_a_place_without_results_says_so() -> None:
    page = "<!-- results: no-such -->\nold\n<!-- end -->\n"
    assert "No row has been computed yet." in tables.filled(page)
