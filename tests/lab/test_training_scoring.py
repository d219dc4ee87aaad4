import lzma
import math
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.lab.data import (
    accuracy,
    bleu,
    edit_distance,
    pronunciation_score,
    read_pronunciations,
    sentence_vectors,
    similarity_correlation,
)
from rankscope.networks import PHONEMES, WordPieces, build_trained

# The accuracy of a classifier.


@settings(deadline=None, max_examples=25)
@given(count=st.integers(1, 30), batch_size=st.integers(1, 9), seed=st.integers(0, 2**16))
def test_accuracy_is_the_share_of_right_guesses_whatever_the_batches(
    count: int, batch_size: int, seed: int
) -> None:
    torch.manual_seed(seed)
    logits, labels = torch.randn(count, 3), torch.randint(3, (count,))
    right = sum(int(row.argmax()) == int(label) for row, label in zip(logits, labels, strict=True))
    assert accuracy(nn.Identity(), logits, labels, batch_size=batch_size) == right / count


def test_the_model_is_run_in_inference_mode_and_left_in_its_own() -> None:
    frozen = nn.BatchNorm1d(4).eval()
    model = nn.Sequential(frozen, nn.Dropout(1.0), nn.BatchNorm1d(4)).train()
    frozen.eval()
    assert accuracy(model, torch.eye(4), torch.arange(4)) == 1
    assert [part.training for part in model] == [False, True, True]
    assert model.training
    assert frozen.num_batches_tracked == 0


@pytest.mark.parametrize(("inputs", "labels"), [(0, 0), (3, 2)])
def test_no_inputs_or_another_number_of_labels_are_refused(inputs: int, labels: int) -> None:
    with pytest.raises(DataError, match=rf"got {inputs} inputs and labels of shape \({labels},\)"):
        accuracy(nn.Identity(), torch.zeros(inputs, 2), torch.zeros(labels).long())


# bleu.


REFERENCE = ["the", "cat", "sat", "on", "the", "mat", "today"]


def test_a_perfect_translation_has_100_percent() -> None:
    assert bleu([REFERENCE, REFERENCE[:5]], [REFERENCE, REFERENCE[:5]]) == pytest.approx(100)


def test_runs_are_counted_as_often_as_the_reference_has_them() -> None:
    """By hand: of three "the" two count, and no run over "the the" does."""
    translation = ["the", "cat", "sat", "on", "the", "the", "mat"]
    shares = (6 / 7, 5 / 6, 3 / 5, 2 / 4)
    wanted = 100 * math.prod(shares) ** 0.25
    assert bleu([translation], [REFERENCE]) == pytest.approx(wanted)


def test_short_translations_are_penalized_and_long_ones_are_not() -> None:
    assert bleu([REFERENCE[:5]], [REFERENCE]) == pytest.approx(100 * math.exp(1 - 7 / 5))
    longer = [*REFERENCE, "again"]
    shares = (7 / 8, 6 / 7, 5 / 6, 4 / 5)
    assert bleu([longer], [REFERENCE]) == pytest.approx(100 * math.prod(shares) ** 0.25)


def test_it_is_of_the_corpus_and_not_a_mean_of_sentences() -> None:
    good, bad = REFERENCE, ["no"] * 7
    shares = [(7 - n) / (2 * (7 - n)) for n in range(4)]
    wanted = 100 * math.prod(shares) ** 0.25
    assert bleu([good, bad], [REFERENCE, REFERENCE]) == pytest.approx(wanted)


def test_nothing_shared_is_nothing() -> None:
    assert bleu([["no"] * 7, []], [REFERENCE, REFERENCE]) == 0


def test_other_numbers_of_sentences_are_refused() -> None:
    with pytest.raises(DataError, match="got 1 translations and 2 references"):
        bleu([REFERENCE], [REFERENCE, REFERENCE])
    with pytest.raises(DataError, match="got 0 translations and 0 references"):
        bleu([], [])


# Words and phonemes: edit distances, the dictionary's file, and the score.


SHARED = Path(
    os.environ.get("RANKSCOPE_SHARED", Path(__file__).parents[3] / "shared" / "data")
).absolute()
DICTIONARY = """\
a AH0
a(2) EY1
b B IY1 # a letter
# a comment
'bout B AW1 T
b2b B IY1

zoo Z UW1
"""


def distance_by_definition(one: str, other: str) -> int:
    if not one or not other:
        return len(one) + len(other)
    return min(
        distance_by_definition(one[1:], other) + 1,
        distance_by_definition(one, other[1:]) + 1,
        distance_by_definition(one[1:], other[1:]) + (one[0] != other[0]),
    )


@settings(deadline=None)
@given(one=st.text("ab", max_size=4), other=st.text("abc", max_size=4))
def test_the_edit_distance_is_its_definition(one: str, other: str) -> None:
    assert edit_distance(one, other) == distance_by_definition(one, other)


def test_a_dictionary_is_read_with_all_pronunciations_of_plain_words() -> None:
    expected = {"a": [("AH0",), ("EY1",)], "b": [("B", "IY1")], "zoo": [("Z", "UW1")]}
    Path("words.dict").write_text(DICTIONARY, encoding="utf-8")
    Path("words.dict.xz").write_bytes(lzma.compress(DICTIONARY.encode()))
    for name in ("words.dict", "words.dict.xz"):
        assert read_pronunciations(Path(name)) == expected


def test_a_word_without_phonemes_is_refused_with_its_line() -> None:
    Path("words.dict").write_text("a AH0\nb # nothing\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"words.dict, line 2: 'b' has no phonemes"):
        read_pronunciations(Path("words.dict"))


@pytest.mark.parametrize("name", ["none.dict", "damaged.dict.xz", "latin.dict"])
def test_a_file_that_cannot_be_read_is_refused(name: str) -> None:
    if name != "none.dict":
        Path(name).write_bytes(b"caf\xe9 K AE0")
    with pytest.raises(DataError, match=rf"cannot read '{name}': "):
        read_pronunciations(Path(name))


class FirstLetter(nn.Module):
    """Says B for a word that begins with b, else D AA1."""

    def forward(self, letters: Tensor) -> Tensor:
        first = letters[:, 0] == 4
        number = {name: place for place, name in enumerate(PHONEMES)}
        one = torch.where(first, number["B"], number["D"])
        two = torch.where(first, number["</s>"], number["AA1"])
        end = torch.full_like(one, number["</s>"])
        return nn.functional.one_hot(torch.stack([one, two, end], dim=1), len(PHONEMES))


@pytest.mark.parametrize("batch_size", [1, 2, 500])
def test_words_count_if_one_pronunciation_is_right_and_errors_to_the_nearest(
    batch_size: int,
) -> None:
    words: dict[str, list[tuple[str, ...]]] = {
        "bb": [("B", "IY1"), ("B",)],  # spoken B: right
        "c": [("D", "IY1")],  # spoken D AA1: one changed of two
        "ddd": [("AA1",), ("K", "K", "K", "K")],  # one too many, of one
    }
    score = pronunciation_score(FirstLetter(), words, batch_size=batch_size)
    assert score.num_words == 3
    assert score.word_accuracy == 1 / 3
    assert score.phoneme_error == 2 / 4


def test_no_words_are_refused() -> None:
    with pytest.raises(DataError, match=r"at least one word, got 0"):
        pronunciation_score(FirstLetter(), {})


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "g2p_en").is_dir(), reason="needs the shared data")
def test_the_public_model_speaks_two_words_of_three_rightly() -> None:
    words = read_pronunciations(SHARED / "g2p_en" / "cmudict.dict.xz")
    chosen = {word: words[word] for word in list(words)[::400]}
    score = pronunciation_score(build_trained("letter-to-phoneme", data=SHARED), chosen)
    # 69.6 % is the figure that comes with the data; three standard deviations of 294 words are 8 %.
    assert abs(score.word_accuracy - 0.696) < 0.08


# Sentence similarity: cosines of mean-pooled states against given scores.


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
        result = sentence_vectors(model, letters, sentences, batch_size=batch_size)
        torch.testing.assert_close(result, expected)


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


@pytest.mark.slow
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
