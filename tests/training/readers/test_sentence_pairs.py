"""Sentences beside each other."""

from pathlib import Path

import pytest

from rankscope.errors import DataError
from rankscope.training.text_data import read_scored_pairs, read_sentence_pairs


def test_lines_are_paired_and_only_newlines_end_them(tmp_path: Path) -> None:
    (tmp_path / "en").write_bytes("one\u2028and a half\ntwo\n".encode())
    (tmp_path / "de").write_bytes(b"eins\nzwei\n")
    pairs = read_sentence_pairs(tmp_path / "en", tmp_path / "de")
    assert pairs == [("one\u2028and a half", "eins"), ("two", "zwei")]
    (tmp_path / "de").write_bytes(b"eins\n")
    with pytest.raises(DataError, match=r"en has 2 lines, but .*de has 1"):
        read_sentence_pairs(tmp_path / "en", tmp_path / "de")


def test_scored_pairs_are_rows_of_three_fields(tmp_path: Path) -> None:
    path = tmp_path / "scored.csv"
    path.write_text('"A cat, a dog.",Two animals.,3.5\n', encoding="utf-8")
    assert read_scored_pairs(path) == [("A cat, a dog.", "Two animals.", 3.5)]
    path.write_text("a,b,1\nc,d\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 2: .* got 2 fields ending in \['d'\]"):
        read_scored_pairs(path)
