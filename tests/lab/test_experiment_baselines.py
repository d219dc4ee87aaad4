"""Baselines: definitions, index by index, and what they see."""

import math
from collections import Counter
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import ExperimentError
from rankscope.lab.experiments import (
    CharacterTask,
    ClassBaseline,
    NGramBaseline,
    PixelBaseline,
    PixelTask,
    RunContext,
    TrainingWorkload,
    witten_bell_loss,
)
from rankscope.lab.experiments.baselines import NEIGHBOURS
from rankscope.lab.experiments.label_noise import NoisyBaseline

TEXTS = st.lists(st.integers(0, 3), min_size=6, max_size=40)


def probability(text: list[int], context: tuple[int, ...], symbol: int) -> float:
    """Witten and Bell's, by its definition."""
    lower = probability(text, context[1:], symbol) if context else 1 / 4
    runs = [
        (tuple(text[at - len(context) : at]), text[at]) for at in range(len(context), len(text))
    ]
    followers = Counter(after for before, after in runs if before == context)
    if not followers:
        return lower
    kinds = len(followers)
    return (followers[symbol] + kinds * lower) / (followers.total() + kinds)


@settings(deadline=None, max_examples=30)
@given(text=TEXTS, test=TEXTS, order=st.integers(1, 4))
def test_tables_of_the_last_symbols_are_those_of_witten_and_bell(
    text: list[int], test: list[int], order: int
) -> None:
    length, seen = len(test) - 1, order - 1
    contexts = [tuple(test[max(at - seen, 0) : at]) if seen else () for at in range(1, len(test))]
    wanted = [
        -math.log(probability(text, before, after))
        for before, after in zip(contexts, test[1:], strict=True)
    ]
    window = torch.tensor(test)
    result = witten_bell_loss(torch.tensor(text), window[None, :length], window[None, 1:], order, 4)
    assert result == pytest.approx(sum(wanted) / length)


def test_an_order_of_nothing_is_refused() -> None:
    text = torch.zeros(1, 3, dtype=torch.long)
    with pytest.raises(ExperimentError, match="order must be at least 1, got 0"):
        witten_bell_loss(text[0], text, text, 0, 2)


def context(folder: Path) -> RunContext:
    return RunContext(folder, None, 60.0)


def test_longer_tables_know_more(tmp_path: Path) -> None:
    task = CharacterTask("embedded", 32)
    rows = [NGramBaseline(task, order).run(context(tmp_path)) for order in (1, 2, 3)]
    losses = [float(str(row["test loss"])) for row in rows]
    assert losses == sorted(losses, reverse=True)
    assert rows[1]["baseline"] == "2-gram"


def test_neighbours_tell_something_of_a_pixel(tmp_path: Path) -> None:
    task = PixelTask("digits", num_tested=50)
    bits = [
        float(str(PixelBaseline(task, form).run(context(tmp_path))["bits"])) for form in NEIGHBOURS
    ]
    assert max(bits) < math.log2(17)
    assert bits[2] < bits[1]  # four neighbours know more than one of them


def test_a_colour_that_follows_from_neighbours_costs_next_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = numpy.add.outer(numpy.arange(4), numpy.arange(4))  # one more than the left pixel
    images = torch.tensor(numpy.stack([places + start for start in range(8)])).reshape(8, 16, 1)
    images = images.expand(8, 16, 3)
    monkeypatch.setattr(PixelTask, "images_of", lambda *_: (images.repeat(50, 1, 1), images, 17))
    row = PixelBaseline(PixelTask(side=4), "linear-4-neighbours").run(context(tmp_path))
    # Only the first pixel of an image is not known from its neighbours, and only its first colour.
    assert float(str(row["bits"])) < 0.35


def test_classes_are_guessed_by_frequency_or_by_a_linear_function(tmp_path: Path) -> None:
    most, fitted = (
        ClassBaseline("digits", is_logistic=is_logistic, num_samples=400).run(context(tmp_path))
        for is_logistic in (False, True)
    )
    assert 5 < float(str(most["test accuracy"])) < 15
    assert float(str(fitted["test accuracy"])) > 85
    assert fitted["baseline"] == "digits-logistic-regression"


def test_labels_that_are_not_random_give_the_plain_regression(tmp_path: Path) -> None:
    workload = TrainingWorkload("digits", 400, is_cp=False)
    true, noisy, random = (
        NoisyBaseline(workload, noise).run(context(tmp_path))["test accuracy"]
        for noise in (0.0, 0.4, 1.0)
    )
    plain = ClassBaseline("digits", num_samples=400, column="accuracy").run(context(tmp_path))
    assert true == plain["accuracy"]
    assert float(str(true)) > float(str(noisy)) > 30 > float(str(random))
