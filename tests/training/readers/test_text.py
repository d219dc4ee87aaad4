"""Text as numbers."""

import gzip
import lzma
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankscope.errors import DataError
from rankscope.training.text_data import END_OF_LINE, Vocabulary, read_text, words


@given(text=st.text())
def test_characters_survive_the_way_through_numbers(text: str) -> None:
    vocabulary = Vocabulary.of(text)
    numbers = vocabulary.encode(text)
    assert "".join(vocabulary.symbols[number] for number in numbers) == text


@given(lines=st.lists(st.lists(st.sampled_from(["a", "bb", "<unk>"]))))
def test_every_line_ends_with_its_mark(lines: list[list[str]]) -> None:
    text = "".join(" ".join(line) + " \n" for line in lines)
    assert words(text) == [word for line in lines for word in (*line, END_OF_LINE)]


def test_an_unknown_symbol_is_refused() -> None:
    with pytest.raises(DataError, match="'c' is none of the 2 symbols"):
        Vocabulary(("a", "b")).encode("abc")


def test_files_keep_their_line_ends_and_must_be_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\r\ntwo\n")
    assert read_text(path) == "one\r\ntwo\n"
    path.write_bytes(b"abc\xff")
    with pytest.raises(DataError, match="byte 3 is none of it"):
        read_text(path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_text(tmp_path / "absent")


def test_a_packed_text_is_unpacked_and_a_damaged_one_refused(tmp_path: Path) -> None:
    packed = tmp_path / "text.xz"
    packed.write_bytes(lzma.compress(b"ein Satz\n"))
    assert read_text(packed) == "ein Satz\n"
    packed.write_bytes(b"no such thing")
    with pytest.raises(DataError, match=r"text\.xz cannot be unpacked"):
        read_text(packed)


@given(text=st.text(alphabet="abcde", min_size=1))
def test_frequent_symbols_come_first_and_decoding_inverts(text: str) -> None:
    vocabulary = Vocabulary.by_frequency([text])
    counts = [text.count(symbol) for symbol in vocabulary.symbols]
    assert counts == sorted(counts, reverse=True)
    assert "".join(vocabulary.decode(vocabulary.encode(text))) == text


def test_a_limited_vocabulary_has_a_symbol_for_the_rest() -> None:
    vocabulary = Vocabulary.by_frequency(["aab"], first=("?",), max_symbols=2, unknown="?")
    assert vocabulary.symbols == ("?", "a")
    assert vocabulary.encode("abz").tolist() == [1, 0, 0]
    assert Vocabulary.by_frequency(["aab"], min_count=2).symbols == ("a",)


def test_impossible_vocabularies_and_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="got 3 of which only 2 differ"):
        Vocabulary(("a", "b", "a"))
    with pytest.raises(
        DataError, match="'u' is to stand for unknown symbols, but is none of the 1"
    ):
        Vocabulary(("a",), unknown="u")
    with pytest.raises(DataError, match="2 is the number of none of the 2 symbols"):
        Vocabulary(("a", "b")).decode(torch.tensor([0, 2]))


def test_a_gzipped_text_is_unpacked_and_a_damaged_one_refused(tmp_path: Path) -> None:
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress(b"ein Satz\n"))
    assert read_text(packed) == "ein Satz\n"
    packed.write_bytes(gzip.compress(b"ein Satz\n")[:-4])
    with pytest.raises(DataError, match=r"text\.gz cannot be unpacked"):
        read_text(packed)
