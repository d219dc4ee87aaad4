"""How well a model pronounces words, against the CMU Pronouncing Dictionary."""

import lzma
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from rankscope.architectures.models.letter_to_phoneme import read_phonemes, spell
from rankscope.errors import DataError
from rankscope.modes import inference

Pronunciations = Mapping[str, Sequence[tuple[str, ...]]]


@dataclass(frozen=True)
class PhonemeScore:
    """How many words were spoken rightly, and how wrong the phonemes were.

    Args:
        num_words: that were scored.
        word_accuracy: share of words spoken exactly as one of their pronunciations.
        phoneme_error: insertions, deletions and changes to the nearest pronunciation, over the
            phonemes of these.
    """

    num_words: int
    word_accuracy: float
    phoneme_error: float


def pronunciation_score(
    model: nn.Module, words: Pronunciations, *, batch_size: int = 500
) -> PhonemeScore:
    """Score a model's likeliest phonemes, step by step, for words with their pronunciations.

    Args:
        model: letters (batch, length), as `spell` gives them, to logits (batch, steps, phonemes).
        words: each with at least one pronunciation that is right.
        batch_size: words at a time.

    Raises:
        DataError: if there are no words.
    """
    if not words:
        raise DataError("pronunciation_score: wanted at least one word, got 0.")
    # Words of similar length are run together, so that little is spent on padding.
    names = sorted(words, key=len)
    errors = [
        min((edit_distance(spoken, right), len(right)) for right in words[name])
        for name, spoken in zip(names, _spoken(model, names, batch_size), strict=True)
    ]
    return PhonemeScore(
        len(names),
        word_accuracy=sum(distance == 0 for distance, _ in errors) / len(errors),
        phoneme_error=sum(distance for distance, _ in errors) / sum(size for _, size in errors),
    )


def _spoken(model: nn.Module, names: Sequence[str], batch_size: int) -> list[tuple[str, ...]]:
    spoken = []
    with torch.no_grad(), inference(model):
        for start in range(0, len(names), batch_size):
            spoken += read_phonemes(model(spell(names[start : start + batch_size])))
    return spoken


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Fewest insertions, deletions and changes that turn one sequence into the other.

    Example:
        >>> edit_distance("kitten", "sitting")
        3

    Reference:
        Wagner & Fischer (1974), "The string-to-string correction problem", section 3.
    """
    row = list(range(len(other) + 1))
    for symbol in one:
        diagonal, row[0] = row[0], row[0] + 1
        for place, wanted in enumerate(other, start=1):
            changed = diagonal + (symbol != wanted)
            diagonal = row[place]
            row[place] = min(row[place] + 1, row[place - 1] + 1, changed)
    return row[-1]


def read_pronunciations(path: Path) -> dict[str, list[tuple[str, ...]]]:
    """Words of the letters a to z and how they are spoken, from `cmudict.dict` or its `.xz`.

    A line is a word, `(2)` behind it for its second pronunciation, and phonemes; `#` begins a
    comment. Words with other signs (apostrophes, digits) are left out, as a reader of letters does
    not know them.

    Raises:
        DataError: if the file cannot be read, or a line has no phonemes.
    """
    try:
        content = path.read_bytes()
        text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode("utf-8")
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise DataError(f"read_pronunciations: cannot read {str(path)!r}: {error}.") from error
    words: dict[str, list[tuple[str, ...]]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        name, *phonemes = line.partition("#")[0].split() or [""]
        if name and not phonemes:
            raise DataError(f"{path}, line {number:,}: {name!r} has no phonemes.")
        word = re.sub(r"\(\d+\)$", "", name)
        if re.fullmatch("[a-z]+", word):
            words.setdefault(word, []).append(tuple(phonemes))
    return words
