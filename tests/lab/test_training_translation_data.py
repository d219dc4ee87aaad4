"""Sentence pairs, padded."""

import gzip
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import DataError
from rankscope.lab.data import IGNORED, PairedSentences, TranslationData, load_translation
from rankscope.lab.data.translation_data import PADDING_NUMBER, SPECIAL

FOLDERS = [Path(name) for name in os.environ.get("RANKSCOPE_DATA", "").split(os.pathsep) if name]
REAL = next((folder for folder in FOLDERS if (folder / "multi30k").is_dir()), None)
Words = list[str]
sentences = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5)


def without_padding(numbers: Tensor) -> Tensor:
    return numbers[numbers != PADDING_NUMBER]


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6))
def test_pairs_survive_padding_and_targets_are_one_ahead(pairs: list[tuple[Words, Words]]) -> None:
    data = TranslationData.of("made", pairs, pairs, pairs, min_count=1)
    source, target = data.source_vocabulary, data.target_vocabulary
    for number, batch in enumerate(data.train.data.batches(2)):
        some = pairs[2 * number : 2 * number + 2]
        parts = data.train.parts(batch)
        assert parts.sources.shape[1] == max(len(read) for read, _ in some) + 1
        assert parts.inputs.shape == parts.targets.shape
        assert parts.inputs.shape[1] == max(len(write) for _, write in some) + 1
        for row, (read, write) in enumerate(some):
            assert source.decode(without_padding(parts.sources[row])) == [*read, "<eos>"]
            assert target.decode(without_padding(parts.inputs[row])) == ["<sos>", *write]
            wanted = parts.targets[row]
            assert target.decode(wanted[wanted != IGNORED]) == [*write, "<eos>"]
            assert torch.equal(wanted != IGNORED, parts.inputs[row] != PADDING_NUMBER)


def test_rare_words_of_the_training_sentences_are_unknown() -> None:
    train = [(["x", "x", "y"], ["u"]), (["x"], ["u", "v"])]
    data = TranslationData.of("made", train, train, [(["y", "z"], ["v", "w"])])
    assert data.source_vocabulary.symbols == (*SPECIAL, "x")
    assert data.target_vocabulary.symbols == (*SPECIAL, "u")
    assert SPECIAL[PADDING_NUMBER] == "<pad>"
    read = data.test.parts(data.test.data.batches(1)[0]).sources[0]
    assert data.source_vocabulary.decode(read) == ["<unk>", "<unk>", "<eos>"]
    assert data.references == (("v", "w"),)


def test_no_pairs_are_refused() -> None:
    train = [(["x"], ["y"])]
    made = TranslationData.of("made", train, train, train)
    with pytest.raises(DataError, match="wanted at least 1 pair of sentences, got 0"):
        PairedSentences.of([], made.source_vocabulary, made.target_vocabulary)


def write_pairs(folder: Path) -> None:
    folder.mkdir()
    for part in ("train", "val", "test_2016_flickr"):
        (folder / f"{part}.de").write_text("Ein Hund.\nEin Hund, zwei Hunde!\n", encoding="utf-8")
        (folder / f"{part}.en.gz").write_bytes(gzip.compress(b"A dog.\nA dog, two dogs!\n"))


def test_files_are_read_plain_or_packed_and_long_sentences_only_scored(tmp_path: Path) -> None:
    write_pairs(tmp_path / "multi30k")
    data = load_translation("multi30k", tmp_path, max_words=3, min_count=1)
    assert (len(data.train), len(data.validation), len(data.test)) == (1, 2, 2)
    assert data.references == (("a", "dog", "."), ("a", "dog", ",", "two", "dogs", "!"))
    assert data.source_vocabulary.symbols == (*SPECIAL, "ein", "hund", ".")
    back = load_translation("multi30k", tmp_path, languages=("en", "de"), min_count=1)
    assert back.source_vocabulary.symbols[4:6] == ("a", "dog")


def test_unknown_and_absent_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sentence pairs 'x'; choose multi30k"):
        load_translation("x")
    with pytest.raises(DataError, match=r"no folder 'multi30k' .* github\.com/multi30k/dataset"):
        load_translation("multi30k", tmp_path)
    write_pairs(tmp_path / "multi30k")
    (tmp_path / "multi30k" / "val.de").write_text("Ein Hund.\n")
    with pytest.raises(DataError, match=r"val\.de has 1 lines, but .*val\.en\.gz has 2"):
        load_translation("multi30k", tmp_path)


@pytest.mark.skipif(REAL is None, reason="needs the real sentences in RANKSCOPE_DATA")
@pytest.mark.slow
def test_the_real_sentences_have_their_published_counts() -> None:
    data = load_translation("multi30k", REAL)
    assert (len(data.train), len(data.validation), len(data.test)) == (29_000, 1_014, 1_000)
