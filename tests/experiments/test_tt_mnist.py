from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rankscope.experiments.classifiers import TT_DIGITS, TT_MNIST, ClassifierEntry, learning_curves
from rankscope.experiments.experiment import Entry, Row, RunContext
from rankscope.training.recipe import Constant


def classifier_entry(entry: Entry) -> ClassifierEntry:
    assert isinstance(entry, ClassifierEntry)
    return entry


def test_the_published_settings_follow_the_published_protocol() -> None:
    for entry in map(classifier_entry, TT_MNIST.entries[:2]):
        recipe = entry.recipe
        assert (recipe.epochs, recipe.batch_size, recipe.learning_rate) == (20, 64, 5e-4)
        assert recipe.schedule == Constant()
        assert (entry.data_set, entry.num_samples) == ("mnist", None)
        assert entry.published is not None


@pytest.mark.parametrize("number", range(len(TT_MNIST.entries)))
def test_every_network_of_the_table_takes_images_of_mnist(number: int) -> None:
    model = classifier_entry(TT_MNIST.entries[number]).build(10)
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("number", range(len(TT_DIGITS.entries)))
def test_a_train_learns_digits(number: int, tmp_path: Path) -> None:
    entry = classifier_entry(TT_DIGITS.quick[number])
    short = replace(entry, recipe=replace(entry.recipe, epochs=4))
    accuracy = short.run(RunContext(tmp_path, None, 60.0))["test accuracy"]
    assert isinstance(accuracy, float)
    assert accuracy > 60.0  # of ten classes


def test_the_figure_has_a_line_for_each_run_and_a_label_for_each_setting() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    rows: list[Row] = [
        {"setting": setting, "seed": seed, "test accuracies": [50.0, 60.0 + seed]}
        for setting in ("one", "other")
        for seed in range(2)
    ]
    figure = learning_curves(rows)
    assert isinstance(figure, Figure)
    axes = figure.axes[0]
    assert len(axes.lines) == 4
    assert axes.get_legend_handles_labels()[1] == ["one", "other"]
