"""Networks that learn wrong labels by heart."""

from dataclasses import replace
from pathlib import Path

from rankscope.experiments.cp_networks import LabelNoiseEntry, RademacherEntry, TrainingWorkload
from rankscope.experiments.experiment import Row, RunContext
from rankscope.training.recipe import Recipe

SUBJECT = TrainingWorkload("digits", 20, width=8)
RECIPE = Recipe(epochs=60, batch_size=10, learning_rate=1e-2)
ENTRY = LabelNoiseEntry(SUBJECT, 1.0, RECIPE)


def run(entry: LabelNoiseEntry | RademacherEntry, folder: Path) -> Row:
    return entry.run(RunContext(folder, None, 60.0))


def test_training_ends_when_all_labels_are_learned(tmp_path: Path) -> None:
    row = run(ENTRY, tmp_path)
    assert (row["ended by"], row["train accuracy"]) == ("memorization", 100.0)
    epochs, accuracy = row["epochs"], row["test accuracy"]
    assert isinstance(epochs, int)
    assert epochs < 60
    assert epochs % 2 == 0
    assert isinstance(accuracy, float)
    # What was learned is noise: far from the accuracy that 20 true labels give.
    assert accuracy < 40


def test_a_row_says_when_the_epochs_were_not_enough(tmp_path: Path) -> None:
    row = run(replace(ENTRY, recipe=replace(RECIPE, epochs=1)), tmp_path)
    assert (row["ended by"], row["epochs"]) == ("epoch limit", 1)


def test_names_tell_settings_apart_but_not_seeds() -> None:
    regularized = replace(SUBJECT, is_regularized=True, is_cp=False)
    assert ENTRY.name == replace(ENTRY, seed=3).name == "digits-cp-noise-1"
    assert replace(ENTRY, workload=regularized, noise=0.2).name == (
        "digits-plain-regularized-noise-0.2"
    )
    assert RademacherEntry(SUBJECT, RECIPE).name == "digits-cp-rademacher"


def test_a_network_that_fits_all_signs_has_the_largest_rademacher_complexity(
    tmp_path: Path,
) -> None:
    row = run(RademacherEntry(SUBJECT, RECIPE), tmp_path)
    assert row["Rademacher complexity"] == row["its maximum"]
    bound = row["Rademacher bound"]
    assert isinstance(bound, float)
    assert bound > 2 * float(str(row["its maximum"]))
