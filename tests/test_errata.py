"""The page of errata is made from its data, and a quotation is looked up in the sources."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def made() -> ModuleType:
    spec = spec_from_file_location("make_errata", DOCS / "make_errata.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_command_makes(made: ModuleType) -> None:
    data = json.loads((DOCS / "errata.json").read_text(encoding="utf-8"))
    assert made.page(data) == (DOCS / "errata.md").read_text(encoding="utf-8")


def test_every_row_has_a_kind_and_a_correction(made: ModuleType) -> None:
    data = json.loads((DOCS / "errata.json").read_text(encoding="utf-8"))
    for section in data["sections"]:
        for row in section["rows"]:
            assert set(row) == set(made.COLUMNS)
            assert row["kind"] in made.KINDS, row["statement"]
            assert row["statement"]
            assert row["right"] or row["ours"], row["statement"]
            assert len(row["quote"]) <= 200, row["statement"]


def test_only_a_remark_of_ours_stands_without_words_of_the_source(made: ModuleType) -> None:
    data = json.loads((DOCS / "errata.json").read_text(encoding="utf-8"))
    assert made.unsupported_rows(data) == []
    rows = [
        {"statement": "false", "quote": " ", "kind": "error"},
        {"statement": "ours", "quote": "", "kind": "remark of ours"},
        {"statement": "of no kind", "quote": "Words.", "kind": "slip"},
    ]
    assert made.unsupported_rows({"sections": [{"rows": rows}]}) == ["false", "of no kind"]


def test_quotations_are_found_across_line_breaks_and_false_ones_are_not(
    made: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "source.txt").write_text("All that\n  is here.\n", encoding="utf-8")
    rows = [{"quote": "All that is here."}, {"quote": "All that was here."}, {"quote": ""}]
    data = {"sections": [{"rows": rows}]}
    assert made.missing_quotations(data, tmp_path) == ["All that was here."]
