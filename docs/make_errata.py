"""Make errata.md from errata.json, and check its quotations where the sources are at hand.

    python docs/make_errata.py                    write the page
    python docs/make_errata.py --sources FOLDER   also look up every quotation in the folder's files

A row has a statement, the source's words, its kind, what is right, what we do, and how that is
known. Only a remark of ours may have no words of the source. A quotation is found if some file of
the folder holds it, white space aside.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATA = HERE / "errata.json"
PAGE = HERE / "errata.md"
KINDS = ("error", "imprecision", "possible artefact of the text conversion", "remark of ours")
COLUMNS = {
    "statement": "statement",
    "quote": "the source's words",
    "kind": "kind",
    "right": "what is right",
    "ours": "what we do",
    "status": "how we know",
}
INTRODUCTION = """# Where the sources and we differ

Statements of the source documents that we found wrong, undefined, easy to misread, or worth a
remark, and what the code does instead. Made by `python docs/make_errata.py` from `errata.json`.
We read the sources as text that was converted from slides and notes, not as their authors set
them: what the conversion may have made is marked so, and formulas are quoted as they stand in
that text. Only a remark of ours may stand without words of the source: it is about what the
source does not say.

Kinds: **error** (the statement is false as it stands, slips of the pen among them),
**imprecision** (right in the sense that was meant, or a condition is missing), **possible
artefact of the text conversion**, **remark of ours** (nothing is wrong: we add to it). How we
know: **proved here** (the proof is in [proofs.md](proofs.md), by section), **measured** (holds in
every case we measured, unproved), **unproved** (evidence only); nothing said: clear from the
definition or the context."""


def page(data: dict[str, Any]) -> str:
    """The page in Markdown."""
    lines = [INTRODUCTION, "", "| cited as | source |", "|---|---|"]
    lines += [f"| {_cell(each['cited'])} | {_cell(each['source'])} |" for each in data["sources"]]
    for section in data["sections"]:
        lines += ["", f"## {section['title']}"]
        lines += [section["note"]] if section["note"] else []
        lines += ["", f"| {' | '.join(COLUMNS.values())} |", f"|{'---|' * len(COLUMNS)}"]
        for row in section["rows"]:
            shown = {**row, "quote": _code(row["quote"])}
            lines.append(f"| {' | '.join(_cell(shown[name]) for name in COLUMNS)} |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Words as they stand; formulas would be typeset otherwise."""
    mark = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"“{mark}{pad}{text}{pad}{mark}”" if text else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def unsupported_rows(data: dict[str, Any]) -> list[str]:
    """Statements called wrong or imprecise without words of the source, or of no known kind."""
    rows = [row for section in data["sections"] for row in section["rows"]]
    return [
        row["statement"]
        for row in rows
        if row["kind"] not in KINDS or (not row["quote"].strip() and row["kind"] != KINDS[-1])
    ]


def missing_quotations(data: dict[str, Any], folder: Path) -> list[str]:
    """Quotations that no file of a folder holds."""
    texts = [_plain(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.txt"))]
    quotes = [row["quote"] for section in data["sections"] for row in section["rows"]]
    return [quote for quote in quotes if not any(_plain(quote) in text for text in texts)]


def _plain(text: str) -> str:
    return " ".join(text.split())


def main() -> int:
    """Write the page; 1 if a row has no words of its source, or they are not found there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sources", type=Path, help="folder with the sources as .txt files")
    arguments = parser.parse_args()
    data = json.loads(DATA.read_text(encoding="utf-8"))
    unsupported = unsupported_rows(data)
    if unsupported:
        print(f"no words of the source: {'; '.join(unsupported)}", file=sys.stderr)
        return 1
    PAGE.write_text(page(data), encoding="utf-8")
    if arguments.sources is None:
        return 0
    rows = [row for section in data["sections"] for row in section["rows"]]
    missing = missing_quotations(data, arguments.sources)
    for quote in missing:
        print(f"not found: {quote}", file=sys.stderr)
    quoted = sum(bool(row["quote"]) for row in rows)
    print(f"{len(rows)} rows, {quoted} with words of the source, {len(missing)} not found")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
