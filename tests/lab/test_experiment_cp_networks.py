from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from rankscope.compression import Recipe
from rankscope.errors import ExperimentError
from rankscope.factorize import CPLinear
from rankscope.lab import find_experiment
from rankscope.lab.experiments import (
    AccuracyEntry,
    LabelNoiseEntry,
    PropertiesEntry,
    RademacherEntry,
    ResNetWorkload,
    Row,
    RunContext,
    TrainingWorkload,
    small_network,
)
from rankscope.lab.experiments.cp_networks import inputs_and_labels
from rankscope.lab.experiments.label_noise import component_spectra, spectrum_facts
from rankscope.networks import DataSet, PadCropFlip, TensorData

CP_LAYERS_ACCURACY = find_experiment("cp-layers-accuracy")

# Small networks, plain and with CP layers.


def images(count: int = 4, side: int = 8) -> DataSet:
    data = TensorData(torch.rand(count, 1, side, side), torch.arange(count))
    return DataSet("made up", data, data, num_classes=10)


def counted(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("width", [4, 16, 32])
def test_both_forms_have_as_many_parameters_up_to_rounding_of_ranks(width: int) -> None:
    plain, factorized = (
        counted(TrainingWorkload("digits", is_cp=is_cp, width=width).network(images(), 0))
        for is_cp in (False, True)
    )
    # Two layers, each off by at most half a component and one number for each component.
    unit = 4 * width + 9 + 1
    most_components = 2 * round(4 * width * width * 9 / unit)
    assert abs(plain - factorized) <= unit + most_components


def test_both_residual_networks_have_as_many_parameters_up_to_rounding_of_ranks() -> None:
    plain, factorized = (
        ResNetWorkload("cifar10", 10, is_cp=is_cp).network(images(), 0) for is_cp in (False, True)
    )
    assert abs(counted(plain) - counted(factorized)) < 0.01 * counted(plain)
    assert ResNetWorkload("cifar10", 10).name == "cifar10-resnet20-cp"
    # Drawn anew, so that no component is much larger than another.
    assert 0.5 < float(str(component_spectra(factorized)["components for 90 %"])) < 1
    assert component_spectra(plain) == {}


def test_a_layer_of_one_large_component_needs_it_alone() -> None:
    layer = CPLinear(4, 5, rank=3)
    with torch.no_grad():
        for core in layer.cores.parameters():
            is_first = torch.arange(3) == 0
            scales = torch.where(is_first, 1.0, 1e-3)
            core.copy_(torch.ones_like(core) * (scales if core.shape[-1] == 3 else scales[:, None]))
    assert component_spectra(layer)["components for 90 %"] == 1 / 3


def test_spectra_are_told_for_every_share_of_wrong_labels() -> None:
    name = "components for 90 %"
    values = ((0.4, 0.5), (0.0, 0.1), (0.0, 0.3))
    rows: list[Row] = [{"noise": noise, name: share} for noise, share in values]
    rows.append({"noise": 0.0, "test accuracy": 10.0})  # without CP layers
    (statement,) = spectrum_facts(rows)
    details = statement.detail.split(", ")
    assert details[0].startswith("0.2 ± ")
    assert details[1] == "0.5 with 0.4 of the labels random"
    assert spectrum_facts(rows[-1:]) == []


def test_both_forms_start_with_the_variance_of_he() -> None:
    for is_cp in (False, True):
        squares = []
        for seed in range(20):
            model = TrainingWorkload("digits", is_cp=is_cp, width=16).network(images(), seed)
            layer = [module for module in model.children() if hasattr(module, "bias")][1]
            weight = layer.weight if isinstance(layer, nn.Conv2d) else layer.to_dense().weight  # type: ignore[operator]
            assert isinstance(weight, torch.Tensor)
            squares.append(float(weight.detach().double().square().mean()))
        # The mean of 20 draws of 4,608 entries; entries of one CP kernel are dependent.
        assert sum(squares) / 20 == pytest.approx(2 / (16 * 9), rel=0.15)


@pytest.mark.parametrize(("side", "places"), [(8, 16), (28, 9), (32, 16), (4, 16)])
def test_images_are_halved_while_three_places_are_left(side: int, places: int) -> None:
    model = small_network((1, side, side), 10, width=2)
    last = model[-1]
    assert isinstance(last, nn.Linear)
    assert last.in_features == 4 * places
    assert model(torch.rand(2, 1, side, side)).shape == (2, 10)


def test_only_regularized_workloads_have_dropout() -> None:
    for is_regularized in (False, True):
        model = TrainingWorkload("digits", is_regularized=is_regularized).network(images(), 0)
        assert any(isinstance(module, nn.Dropout) for module in model.modules()) == is_regularized


def test_only_regularized_workloads_are_augmented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rankscope.lab.experiments.cp_networks.load_data_set", lambda name, folder: images()
    )
    assert TrainingWorkload("cifar10").data(None).train.augment is None
    assert (
        TrainingWorkload("cifar10", is_regularized=True).data(None).train.augment == PadCropFlip()
    )
    assert TrainingWorkload("digits", is_regularized=True).data(None).train.augment is None


def test_samples_are_the_first_ones_in_the_form_that_networks_take(tmp_path: Path) -> None:
    data = TrainingWorkload("digits", 30).data(tmp_path)
    inputs, labels = inputs_and_labels(data.train)
    assert inputs.shape == (30, 1, 8, 8)
    assert labels.shape == (30,)


def test_more_samples_than_there_are_are_refused() -> None:
    with pytest.raises(ExperimentError, match="digits has 1,437 training samples, but 2,000 are"):
        TrainingWorkload("digits", 2000).data(None)


# Accuracy with CP layers.


ENTRY = AccuracyEntry(
    TrainingWorkload("digits", 60, width=4), Recipe(epochs=3, batch_size=20, learning_rate=1e-2)
)


def run(entry: AccuracyEntry, folder: Path) -> Row:
    return entry.run(RunContext(folder, None, 60.0))


def test_a_row_follows_from_its_seed(tmp_path: Path) -> None:
    rows = [run(replace(ENTRY, seed=seed), tmp_path / str(at)) for at, seed in enumerate((0, 0, 1))]
    assert rows[0] == rows[1]
    assert rows[0]["losses"] != rows[2]["losses"]
    train, test = rows[0]["train accuracy"], rows[0]["test accuracy"]
    assert isinstance(train, float)
    assert isinstance(test, float)
    assert rows[0]["gap"] == train - test


def test_every_network_is_compared_with_its_plain_twin() -> None:
    for entries in (CP_LAYERS_ACCURACY.entries[:6], CP_LAYERS_ACCURACY.quick):
        for plain, factorized in zip(entries[::2], entries[1::2], strict=True):
            assert isinstance(plain, AccuracyEntry)
            assert isinstance(factorized, AccuracyEntry)
            twin = replace(plain.workload, is_cp=True)
            assert replace(plain, workload=twin) == factorized


# Networks that are measured, not trained.


@pytest.mark.slow
def test_an_untrained_network_is_measured_beside_its_plain_twin(tmp_path: Path) -> None:
    row = PropertiesEntry("cp-digits", "digits", 10).run(RunContext(tmp_path, None, 60.0))
    assert (row["plain parameters"], row["samples"], row["layers"]) == (19178, 10, 4)
    factors, cushions = row["t"], row["cushions"]
    assert isinstance(factors, list)
    assert isinstance(cushions, list)
    assert len(factors) == len(cushions) == 4
    assert row["smallest cushion"] == min(cushions)
    kept, components = row["components kept"], row["components"]
    assert isinstance(kept, int)
    assert isinstance(components, int)
    assert kept <= components


# Networks that learn wrong labels by heart.


SUBJECT = TrainingWorkload("digits", 20, width=8)
RECIPE = Recipe(epochs=60, batch_size=10, learning_rate=1e-2)
NOISY_ENTRY = LabelNoiseEntry(SUBJECT, 1.0, RECIPE)


def run_noisy(entry: LabelNoiseEntry | RademacherEntry, folder: Path) -> Row:
    return entry.run(RunContext(folder, None, 60.0))


def test_training_ends_when_all_labels_are_learned(tmp_path: Path) -> None:
    row = run_noisy(NOISY_ENTRY, tmp_path)
    assert (row["ended by"], row["train accuracy"]) == ("memorization", 100.0)
    epochs, accuracy = row["epochs"], row["test accuracy"]
    assert isinstance(epochs, int)
    assert epochs < 60
    assert epochs % 2 == 0
    assert isinstance(accuracy, float)
    # What was learned is noise: far from the accuracy that 20 true labels give.
    assert accuracy < 40


def test_a_row_says_when_the_epochs_were_not_enough(tmp_path: Path) -> None:
    row = run_noisy(replace(NOISY_ENTRY, recipe=replace(RECIPE, epochs=1)), tmp_path)
    assert (row["ended by"], row["epochs"]) == ("epoch limit", 1)


def test_names_tell_settings_apart_but_not_seeds() -> None:
    regularized = replace(SUBJECT, is_regularized=True, is_cp=False)
    assert NOISY_ENTRY.name == replace(NOISY_ENTRY, seed=3).name == "digits-cp-noise-1"
    assert replace(NOISY_ENTRY, workload=regularized, noise=0.2).name == (
        "digits-plain-regularized-noise-0.2"
    )
    assert RademacherEntry(SUBJECT, RECIPE).name == "digits-cp-rademacher"


def test_a_network_that_fits_all_signs_has_the_largest_rademacher_complexity(
    tmp_path: Path,
) -> None:
    row = run_noisy(RademacherEntry(SUBJECT, RECIPE), tmp_path)
    assert row["Rademacher complexity"] == row["its maximum"]
    bound = row["Rademacher bound"]
    assert isinstance(bound, float)
    assert bound > 2 * float(str(row["its maximum"]))
