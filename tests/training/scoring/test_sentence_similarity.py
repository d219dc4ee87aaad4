"""Sentence similarity: cosines of mean-pooled states against given scores."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rankscope.architectures.models.catalogue import build_trained
from rankscope.architectures.models.wordpiece import WordPieces
from rankscope.errors import DataError
from rankscope.training.scoring import (
    sentence_vectors,
    similarity_correlation,
)

MORE = Path(os.environ.get("RANKSCOPE_MORE", Path.home() / ".cache" / "rankscope-more"))


def letters(sentences: Sequence[str]) -> Tensor:
    """Each letter a token: a is 1, b is 2 …"""
    rows = [torch.tensor([ord(letter) - 96 for letter in sentence]) for sentence in sentences]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def test_vectors_come_in_the_order_of_the_sentences_whatever_the_batches() -> None:
    model = nn.Embedding(27, 5)
    sentences = ["abcd", "a", "bb", "zyxwv", "ca"]
    expected = torch.stack([model(letters([s]))[0].mean(dim=0) for s in sentences])
    for batch_size in (1, 2, 64):
        found = sentence_vectors(model, letters, sentences, batch_size=batch_size)
        torch.testing.assert_close(found, expected)


def test_the_correlation_is_that_of_ranks() -> None:
    """Pairs with cosines 1, 0.6 and 0, in this order or the other one."""
    model = nn.Embedding(27, 2)
    with torch.no_grad():
        model.weight[1:4] = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0]])
    pairs = [("a", "aa"), ("a", "b"), ("c", "a")]
    for scores, expected in (((5.0, 4.9, 0.0), 1.0), ((0.0, 1.0, 5.0), -1.0)):
        scored = [(*pair, score) for pair, score in zip(pairs, scores, strict=True)]
        assert similarity_correlation(model, letters, scored) == pytest.approx(expected)


def test_the_model_is_left_in_its_own_mode() -> None:
    model = nn.Sequential(nn.Embedding(27, 8), nn.Dropout()).train()
    first = sentence_vectors(model, letters, ["ab"])
    torch.testing.assert_close(sentence_vectors(model, letters, ["ab"]), first)
    assert model.training


def test_scores_that_are_all_the_same_are_refused() -> None:
    pairs = [("a", "b", 1.0), ("b", "c", 1.0)]
    with pytest.raises(DataError, match=r"at least two different scores, got 2 pairs with 1\."):
        similarity_correlation(nn.Embedding(27, 2), letters, pairs)


@pytest.mark.skipif(not (MORE / "minilm").is_dir(), reason="needs MiniLM")
def test_minilm_finds_the_paraphrase() -> None:
    pytest.importorskip("tokenizers")
    model = build_trained("minilm", data=MORE)
    tokenize = WordPieces(MORE / "minilm" / "tokenizer.json")
    pairs = [
        ("A man is playing a guitar.", "Someone plays an instrument.", 4.0),
        ("A man is playing a guitar.", "A man plays the guitar.", 5.0),
        ("A man is playing a guitar.", "The stock market fell on Monday.", 0.0),
    ]
    assert similarity_correlation(model, tokenize, pairs) == pytest.approx(1)
