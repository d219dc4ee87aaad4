"""The written proofs: what they cite exists, and what cites them finds its section."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROOFS = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
SECTIONS = [int(number) for number in re.findall(r"^## (\d+)\. ", PROOFS, re.MULTILINE)]


@pytest.mark.parametrize("cited", sorted(set(re.findall(r"`(tests/\S+::\w+)`", PROOFS))))
def test_a_test_cited_by_a_proof_exists(cited: str) -> None:
    path, name = cited.split("::")
    assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_sections_are_numbered_in_order_and_each_cites_a_test() -> None:
    assert sorted(set(SECTIONS)) == SECTIONS
    for section in PROOFS.split("\n## ")[1:]:
        assert "*Tests:*" in section, section.splitlines()[0]


def test_every_section_cited_in_the_code_exists() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        cited = re.findall(r"docs/proofs\.md,\s+section (\d+)", path.read_text(encoding="utf-8"))
        assert {int(number) for number in cited} <= set(SECTIONS), path


@pytest.mark.slow
def test_every_theorem_that_is_called_proved_here_cites_its_section() -> None:
    """Wherever the code makes a theorem of that status, or a docstring says so, in words."""
    count = 0
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(text)):
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "Theorem":
                continue
            written = ast.unparse(call)
            if "Status.PROVED_HERE" in written:
                assert re.search(r"docs/proofs\.md, section \d+", written), (path, written)
                count += 1
        if path.name != "theorem.py":
            for place in re.finditer(r"\(proved here", text):
                after = " ".join(text[place.start() : place.start() + 80].split())
                assert re.search(r"docs/proofs\.md, section \d+", after), (path, after)
    assert count > 20
