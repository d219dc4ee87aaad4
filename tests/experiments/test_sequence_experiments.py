from dataclasses import replace
from pathlib import Path

import pytest

from rankscope.experiments.attention_forms import ATTENTION_FORMS, FormEntry
from rankscope.experiments.bottlenecks import EMBEDDING_BOTTLENECK, HEAD_BOTTLENECK, SIZE
from rankscope.experiments.depth_width import DEPTH_WIDTH
from rankscope.experiments.experiment import Experiment, RunContext
from rankscope.experiments.rank_predicts_loss import RANK_PREDICTS_LOSS, RankEntry
from rankscope.experiments.sequence_models import (
    CharacterTask,
    PixelTask,
    SequenceEntry,
    Steps,
    TranslationTask,
)

EXPERIMENTS = (
    DEPTH_WIDTH,
    HEAD_BOTTLENECK,
    EMBEDDING_BOTTLENECK,
    ATTENTION_FORMS,
    RANK_PREDICTS_LOSS,
)


def sequences(experiment: Experiment) -> list[SequenceEntry]:
    return [entry for entry in experiment.entries if isinstance(entry, SequenceEntry)]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_every_setting_is_run_with_three_seeds_or_has_none(experiment: Experiment) -> None:
    counts = [
        sum(run.entry.name == entry.name for run in experiment.runs())
        for entry in experiment.entries
    ]
    assert set(counts) <= {1, 3}
    assert counts.count(3) >= 9


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda one: one.name)
def test_quick_settings_need_no_data(experiment: Experiment) -> None:
    for entry in experiment.quick:
        inner = entry.entry if isinstance(entry, RankEntry) else entry
        task = inner.task if isinstance(inner, SequenceEntry) else None
        match task:
            case CharacterTask():
                assert task.text == "embedded"
            case TranslationTask():
                assert task.pairs == "reversed"
            case PixelTask():
                assert task.images == "digits"


def test_depths_are_compared_at_equal_parameters() -> None:
    """Widths are whole numbers of two heads, so that sizes agree to a twentieth or so."""
    for entry in sequences(DEPTH_WIDTH):
        wanted = int(entry.name.rpartition("-")[2])
        assert entry.shape.squares == pytest.approx(wanted, rel=0.15)
        assert entry.shape.attention.num_channels == entry.shape.width


def test_heads_are_compared_at_equal_parameters_below_at_and_above_the_width() -> None:
    found = sequences(HEAD_BOTTLENECK)
    for entry in found:
        assert entry.shape.squares == pytest.approx(SIZE, rel=0.02)
    ratios = [entry.shape.attention.num_channels / entry.shape.width for entry in found]
    assert min(ratios) < 0.5 < 1 < 2 < max(ratios)
    assert 1.0 in ratios


def test_wide_and_deep_have_four_times_the_weights() -> None:
    shapes = {entry.name: entry.shape for entry in sequences(EMBEDDING_BOTTLENECK)}
    for name, shape in shapes.items():
        family, _, kind = name.rpartition("-")
        times = 1 if kind == "base" else 4
        assert shape.squares == times * shapes[f"{family}-base"].squares
        assert shape.embedding_rank == shapes[f"{family}-base"].embedding_rank


def test_a_form_of_attention_says_its_weights_and_what_the_source_says(tmp_path: Path) -> None:
    weights = {}
    for entry in ATTENTION_FORMS.quick[:4]:
        assert isinstance(entry, FormEntry)
        short = replace(entry, steps=Steps(1, 2))
        row = short.run(RunContext(tmp_path / entry.name, None, 60.0))
        weights[entry.name] = row["weights of an attention"]
        assert row["source"] == entry.published
    assert list(weights.values()) == [4 * 32**2, 5 * 32**2, 4 * 32**2, 4 * 32 * 4]


def test_models_of_the_other_experiments_are_measured() -> None:
    names = [entry.name for entry in RANK_PREDICTS_LOSS.entries]
    for experiment in (DEPTH_WIDTH, HEAD_BOTTLENECK):
        for entry in sequences(experiment):
            assert f"{experiment.name}-{entry.name}" in names
