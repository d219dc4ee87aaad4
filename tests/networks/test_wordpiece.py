"""Sentences as word pieces, by a tokenizer file made here."""

import sys
from pathlib import Path

import pytest

from rankscope.errors import MissingExtraError, ModelFileError
from rankscope.networks import WordPieces


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tokenizer of five words and one ending, with BERT's signs around every sentence."""
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    signs = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    pieces = [*signs, "a", "cat", "sits", "there", "dog", "##s"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def test_sentences_are_numbers_with_padding_behind_shorter_ones(file: Path) -> None:
    found = WordPieces(file)(["A cat sits there", "Dogs", "bird"])
    assert found.tolist() == [[2, 4, 5, 6, 7, 3], [2, 8, 9, 3, 0, 0], [2, 1, 3, 0, 0, 0]]


def test_long_sentences_are_cut_off_before_the_last_sign(file: Path) -> None:
    found = WordPieces(file, max_tokens=4)(["a cat sits there"])
    assert found.tolist() == [[2, 4, 5, 3]]


def test_a_missing_or_damaged_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelFileError, match=r"cannot read '.*tokenizer.json': No such file"):
        WordPieces(path)
    for content in (b"{}", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"tokenizer.json' is no tokenizer: "):
            WordPieces(path)


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"needs tokenizers, .*'rankscope\[text\]'"):
        WordPieces(Path("tokenizer.json"))
