"""Scores of a model at its task, dense or compressed; every score takes the model first."""

import lzma
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from scipy import stats
from torch import Tensor, nn

from rankscope.errors import DataError
from rankscope.modes import inference
from rankscope.networks.encoder import mean_of_tokens
from rankscope.networks.language import read_phonemes, spell

# The share of examples that a classifier gets right.


def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor, *, batch_size: int = 250) -> float:
    """The share of inputs, (count, …), whose largest logit is that of their label, (count,).

    The model is run in inference mode, and afterwards is in the mode it was in.

    Example:
        >>> accuracy(nn.Identity(), torch.eye(4), torch.tensor([0, 1, 2, 0]))
        0.75

    Raises:
        DataError: if there are no inputs, or another number of labels.
    """
    if len(inputs) == 0 or labels.shape != inputs.shape[:1]:
        raise DataError(
            f"accuracy: wanted one label for each of at least one input, got {len(inputs):,} "
            f"inputs and labels of shape {tuple(labels.shape)}."
        )
    right = 0
    batches = zip(torch.split(inputs, batch_size), torch.split(labels, batch_size), strict=True)
    with torch.no_grad(), inference(model):
        for batch, wanted in batches:
            right += int((model(batch).argmax(dim=1) == wanted).sum())
    return right / len(inputs)


# BLEU: how many short runs of words a translation shares with the one that people wrote.


_LONGEST = 4


def bleu(translations: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    r"""BLEU of a corpus in percent, with one reference for each sentence and no smoothing.

    .. math:: 100 \min(1, e^{1 - r/c}) \Bigl(\prod_{n=1}^{4} p_n\Bigr)^{1/4}

    with p_n the share of runs of n words that occur in the reference of their sentence (each as
    often as there), c the words of all translations and r those of all references.

    Example:
        >>> same = "a man reads a book .".split()
        >>> bleu([same], [same])
        100.0
        >>> bleu([same[:1]], [same])
        0.0

    Raises:
        DataError: if there is no sentence, or another number of references.

    Reference:
        Papineni et al. (2002), ACL, P02-1040.
    """
    if not translations or len(translations) != len(references):
        raise DataError(
            f"bleu: wanted one reference for each of at least one translation, got "
            f"{len(translations):,} translations and {len(references):,} references."
        )
    logarithms = 0.0
    for length in range(1, _LONGEST + 1):
        shared, total = _shared_runs(translations, references, length)
        if shared == 0:
            return 0.0
        logarithms += math.log(shared / total) / _LONGEST
    written, wanted = (sum(map(len, side)) for side in (translations, references))
    return 100 * math.exp(min(0.0, 1 - wanted / written) + logarithms)


def _shared_runs(
    translations: Sequence[Sequence[str]], references: Sequence[Sequence[str]], length: int
) -> tuple[int, int]:
    shared = total = 0
    for translation, reference in zip(translations, references, strict=True):
        ours, theirs = _runs(translation, length), _runs(reference, length)
        shared += (ours & theirs).total()
        total += ours.total()
    return shared, total


def _runs(words: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + length]) for start in range(len(words) - length + 1))


# How well a model pronounces words, against the CMU Pronouncing Dictionary.


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
        min((edit_distance(predicted, right), len(right)) for right in words[name])
        for name, predicted in zip(names, _predicted(model, names, batch_size), strict=True)
    ]
    return PhonemeScore(
        len(names),
        word_accuracy=sum(distance == 0 for distance, _ in errors) / len(errors),
        phoneme_error=sum(distance for distance, _ in errors) / sum(size for _, size in errors),
    )


def _predicted(model: nn.Module, names: Sequence[str], batch_size: int) -> list[tuple[str, ...]]:
    predicted = []
    with torch.no_grad(), inference(model):
        for start in range(0, len(names), batch_size):
            predicted += read_phonemes(model(spell(names[start : start + batch_size])))
    return predicted


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


# How well an encoder's sentence vectors agree with people: the STS benchmark.
#
# Cer et al. (2017), arXiv:1708.00055; scored as sentence-transformers does, by Spearman's
# correlation of people's scores with the cosines of mean-pooled vectors.


Tokenizer = Callable[[Sequence[str]], Tensor]


def similarity_correlation(
    model: nn.Module,
    tokenize: Tokenizer,
    pairs: Sequence[tuple[str, str, float]],
    *,
    batch_size: int = 64,
) -> float:
    """Spearman's rank correlation of cosines and given scores, between -1 and 1.

    Args:
        model: tokens (batch, length) to states (batch, length, width).
        tokenize: sentences to tokens, 0 for padding.
        pairs: two sentences and how alike people found them.
        batch_size: sentences at a time.

    Raises:
        DataError: if there are not two pairs with different scores, which have no correlation.
    """
    scores = [score for _, _, score in pairs]
    if len(set(scores)) < 2:
        raise DataError(
            f"similarity_correlation: wanted pairs with at least two different scores, got "
            f"{len(pairs)} pairs with {len(set(scores))}."
        )
    sentences = [sentence for one, other, _ in pairs for sentence in (one, other)]
    vectors = sentence_vectors(model, tokenize, sentences, batch_size=batch_size)
    cosines = nn.functional.cosine_similarity(vectors[::2], vectors[1::2])
    return float(stats.spearmanr(cosines.double().numpy(), scores).statistic)


def sentence_vectors(
    model: nn.Module, tokenize: Tokenizer, sentences: Sequence[str], *, batch_size: int = 64
) -> Tensor:
    """The mean state of each sentence's tokens, (sentences, width).

    Sentences of similar length are run together, so that little is spent on padding.
    """
    order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
    results = []
    with torch.no_grad(), inference(model):
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            tokens = tokenize([sentences[number] for number in numbers])
            results.append(mean_of_tokens(model(tokens), tokens))
    places = torch.tensor(order).argsort()
    return torch.cat(results)[places]
