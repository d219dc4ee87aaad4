import math

import pytest

from rankscope.errors import DataError
from rankscope.training.scoring import bleu

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
