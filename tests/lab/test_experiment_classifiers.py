import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from rankscope.compression import Constant, Recipe
from rankscope.errors import ExperimentError
from rankscope.lab import find_experiment
from rankscope.lab.experiments import ClassifierEntry, Entry, Form, Row, RunContext, percent_right
from rankscope.lab.experiments.classifiers import (
    DIGITS,
    FORMS,
    LEARNING_CURVES,
    MNIST_PATCHES,
    SIZES,
    SMALL_DIGITS_PATCHES,
    log_rank_bound,
)
from rankscope.networks import PatchFeatures, ShallowClassifier, TensorData

SHALLOW_VS_DEEP = find_experiment("shallow-vs-deep")
TT_DIGITS = find_experiment("tt-digits")
TT_MNIST = find_experiment("tt-mnist")

# Classifier entry.


PATCHES = partial(PatchFeatures, image=(1, 8, 8), patch=4, num_features=4)
ENTRY = ClassifierEntry(
    "small",
    PATCHES,
    partial(ShallowClassifier, channels=3),
    "digits",
    Recipe(epochs=2, batch_size=32, learning_rate=1e-2),
    num_samples=96,
    published=(96.36, 95.32),
)


def run(entry: ClassifierEntry, folder: Path) -> Row:
    return entry.run(RunContext(folder, None, 60.0))


def test_a_row_has_accuracies_after_every_epoch_and_what_was_published(tmp_path: Path) -> None:
    row = run(ENTRY, tmp_path)
    accuracies, losses = row["test accuracies"], row["losses"]
    assert isinstance(accuracies, list)
    assert isinstance(losses, list)
    assert len(accuracies) == len(losses) == 2
    assert row["test accuracy"] == accuracies[-1]
    assert (row["published train"], row["published test"]) == (96.36, 95.32)
    # 3 x 16 + 3 of the features, 4 x 3 x 4 factors and 3 x 10 mixing weights.
    assert row["parameters"] == 3 * 16 + 3 + 4 * 3 * 4 + 3 * 10


def test_the_same_seed_gives_the_same_row_and_another_one_another(tmp_path: Path) -> None:
    rows = [
        run(replace(ENTRY, seed=seed), tmp_path / str(number))
        for number, seed in enumerate((0, 0, 1))
    ]
    losses = [row["losses"] for row in rows]
    assert losses[0] == losses[1] != losses[2]


def test_more_samples_than_there_are_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="digits has 1,437 training samples, but 1,438 are"):
        run(replace(ENTRY, num_samples=1438), tmp_path)


def test_the_rank_is_the_minimal_cut_between_odd_and_even_patches() -> None:
    assert log_rank_bound(ENTRY.build(10)) == pytest.approx(math.log10(3))


def test_percents_count_labels_with_the_largest_logit() -> None:
    data = TensorData(torch.eye(4), torch.tensor([0, 1, 2, 0]))
    assert percent_right(torch.nn.Identity(), data) == 75.0


# Tt mnist.


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


@pytest.mark.parametrize("number", range(3))
def test_every_network_of_the_table_takes_images_of_mnist(number: int) -> None:
    model = classifier_entry(TT_MNIST.entries[number]).build(10)
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
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
        {"setting": setting, "seed": seed, "test accuracies": [50.0, last + seed]}
        for setting, last in (("one", 60.0), ("other", 70.0))
        for seed in range(2)
    ]
    figure = LEARNING_CURVES(rows)
    assert isinstance(figure, Figure)
    axes = figure.axes[0]
    assert len(axes.lines) == 6  # two runs and their mean, of each
    assert {text.get_text() for text in axes.texts} == {"one", "other"}


# Shallow vs deep.


def num_parameters(form: Form, budget: int) -> int:
    features = (SMALL_DIGITS_PATCHES if budget == DIGITS else MNIST_PATCHES)()
    return sum(parameter.numel() for parameter in form(features, num_classes=10).parameters())


@pytest.mark.parametrize("budget", SIZES)
def test_every_form_has_the_largest_size_within_the_parameters(budget: int) -> None:
    for form, size in zip(FORMS, SIZES[budget], strict=True):
        assert num_parameters(form(size), budget) <= budget
        assert num_parameters(form(size + 1), budget) > budget


@pytest.mark.parametrize("budget", SIZES)
def test_no_form_uses_less_than_nine_tenths_of_the_parameters(budget: int) -> None:
    for form, size in zip(FORMS, SIZES[budget], strict=True):
        assert num_parameters(form(size), budget) > 0.9 * budget


def test_the_table_has_every_form_on_digits_and_at_two_sizes_on_mnist() -> None:
    entries = [entry for entry in SHALLOW_VS_DEEP.entries if isinstance(entry, ClassifierEntry)]
    assert [entry.data_set for entry in entries] == ["digits"] * 5 + ["mnist"] * 10
    assert [entry.name for entry in entries[5:8]] == [
        "mnist-15k-shallow",
        "mnist-15k-train",
        "mnist-15k-equal-train",
    ]
    assert all(isinstance(entry, ClassifierEntry) for entry in SHALLOW_VS_DEEP.quick)
