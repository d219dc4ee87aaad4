import gzip
import lzma
import math
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.compression import Recipe, fit
from rankscope.errors import DataError
from rankscope.lab.data import (
    END_OF_LINE,
    Vocabulary,
    load_text,
    mean_loss,
    next_symbol_loss,
    read_scored_pairs,
    read_sentence_pairs,
    read_text,
    windows,
    words,
)
from rankscope.networks import TensorData

# Text as numbers.


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


# Sentences beside each other.


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


# Texts as windows.


FOLDERS = [Path(name) for name in os.environ.get("RANKSCOPE_DATA", "").split(os.pathsep) if name]
REAL = next((folder for folder in FOLDERS if (folder / "wikitext-2").is_dir()), None)


@settings(deadline=None)
@given(length=st.integers(1, 7), extra=st.integers(1, 30))
def test_every_symbol_but_the_first_is_wanted_once(length: int, extra: int) -> None:
    text = torch.arange(length + extra)
    data = windows(text, length)
    assert data.targets is not None
    assert torch.equal(data.targets, data.inputs + 1)
    wanted = data.targets.flatten()
    assert torch.equal(wanted, text[1 : len(wanted) + 1])
    assert len(text) - 1 - len(wanted) < length


def test_a_text_without_a_window_is_refused() -> None:
    with pytest.raises(DataError, match="a text of 4 symbols has no window of 4 and one more"):
        windows(torch.arange(4), 4)
    with pytest.raises(DataError, match="a text of 4 symbols has no window of 0"):
        windows(torch.arange(4), 0)


def write_texts(folder: Path) -> None:
    (folder / "wikitext-2").mkdir()
    for part, text in (("train", "a b a\nc <unk>\n"), ("valid", "b\n"), ("test", "c a\n")):
        (folder / "wikitext-2" / f"{part}.txt").write_text(text)
    (folder / "tinyshakespeare").mkdir()
    (folder / "tinyshakespeare" / "input.txt").write_text("ab" * 50)


def test_words_are_counted_with_ends_of_lines_over_the_whole_text(tmp_path: Path) -> None:
    write_texts(tmp_path)
    text = load_text("wikitext-2", tmp_path)
    assert text.vocabulary.symbols == ("<eos>", "a", "b", "c", "<unk>")
    assert text.vocabulary.decode(text.train) == ["a", "b", "a", "<eos>", "c", "<unk>", "<eos>"]
    assert text.vocabulary.decode(text.validation) == ["b", "<eos>"]
    assert text.vocabulary.decode(text.test) == ["c", "a", "<eos>"]


def test_a_smaller_vocabulary_calls_the_rest_unknown(tmp_path: Path) -> None:
    write_texts(tmp_path)
    text = load_text("wikitext-2", tmp_path, max_symbols=3)
    assert text.vocabulary.symbols == ("<unk>", "<eos>", "a")
    assert text.vocabulary.decode(text.test) == ["<unk>", "a", "<eos>"]


def test_one_text_is_cut_into_three_parts(tmp_path: Path) -> None:
    write_texts(tmp_path)
    text = load_text("tinyshakespeare", tmp_path)
    assert [len(part) for part in (text.train, text.validation, text.test)] == [90, 5, 5]
    joined = torch.cat([text.train, text.validation, text.test])
    assert "".join(text.vocabulary.decode(joined)) == "ab" * 50


def test_the_embedded_text_needs_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKSCOPE_DATA", raising=False)
    text = load_text("embedded")
    assert len(text.train) > 50_000
    assert "rankscope" in "".join(text.vocabulary.decode(text.train)).lower()


def test_unknown_and_absent_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no text 'x'; choose one of wikitext-2, tinyshakespeare"):
        load_text("x")
    with pytest.raises(DataError, match=r"no folder 'tinyshakespeare' .* Get input\.txt"):
        load_text("tinyshakespeare", tmp_path)
    (tmp_path / "wikitext-2").mkdir()
    with pytest.raises(DataError, match=r"train\.txt cannot be read"):
        load_text("wikitext-2", tmp_path)


class Bigram(nn.Module):
    """Logits of the next symbol from the last one only."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.table = nn.Embedding(symbols, symbols)
        nn.init.zeros_(self.table.weight)

    def forward(self, numbers: Tensor) -> Tensor:
        logits: Tensor = self.table(numbers)
        return logits


def test_a_model_that_knows_nothing_has_the_entropy_of_the_alphabet() -> None:
    data = windows(torch.arange(50) % 5, 4)
    # Unequal batches: the mean is that of the symbols.
    assert mean_loss(Bigram(5), data, batch_size=5) == pytest.approx(math.log(5), rel=1e-6)


def test_a_model_learns_to_count(tmp_path: Path) -> None:
    data: TensorData = windows(torch.arange(200) % 5, 8)
    model = Bigram(5)
    fit(model, next_symbol_loss, data, Recipe(epochs=20, batch_size=8, learning_rate=0.5))
    assert mean_loss(model, data) < 0.01


@pytest.mark.skipif(REAL is None, reason="needs the real texts in RANKSCOPE_DATA")
@pytest.mark.slow
def test_the_real_texts_have_their_published_counts() -> None:
    text = load_text("wikitext-2", REAL)
    counts = [len(part) for part in (text.train, text.validation, text.test)]
    assert (counts, len(text.vocabulary)) == ([2_088_628, 217_646, 245_569], 33_278)
    text = load_text("tinyshakespeare", REAL)
    assert sum(len(part) for part in (text.train, text.validation, text.test)) == 1_115_394
    assert len(text.vocabulary) == 65
