"""Words and phonemes: edit distances, the dictionary's file, and the score."""

import lzma
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.architectures.models.catalogue import build_trained
from rankscope.architectures.models.letter_to_phoneme import PHONEMES
from rankscope.errors import DataError
from rankscope.training.scoring import (
    edit_distance,
    pronunciation_score,
    read_pronunciations,
)

SHARED = Path(
    os.environ.get("RANKSCOPE_SHARED", Path(__file__).parents[4] / "shared" / "data")
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
