"""BLEU: how many short runs of words a translation shares with the one that people wrote."""

import math
from collections import Counter
from collections.abc import Sequence

from rankscope.errors import DataError

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
