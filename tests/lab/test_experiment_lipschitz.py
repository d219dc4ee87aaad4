import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from rankscope.compression import Recipe, cross_entropy
from rankscope.errors import ExperimentError
from rankscope.lab import find_experiment
from rankscope.lab.data import AdversarialLoss, MarginLoss
from rankscope.lab.experiments import LipschitzEntry, Row, RunContext, TrainingSetup
from rankscope.lab.experiments.baselines import fitted_regression, flat
from rankscope.lab.experiments.lipschitz import (
    LONGER,
    NUM_DIGITS_SAMPLES,
    TRAINED_ON,
    lost_certificates,
    scaling,
    usual_network,
)
from rankscope.lab.experiments.lipschitz_rows import (
    SOURCE_RECIPE,
    CertifiedBaseline,
    LossSearch,
    SearchedLipschitzEntry,
    first_samples,
    in_pixels,
    radius_name,
)
from rankscope.networks import (
    IMAGENET_NORMALIZATION,
    Batch,
    DataSet,
    PadCropFlip,
    TensorData,
    load_data_set,
)
from rankscope.progress import Progress, ignore
from rankscope.robust import LipConvNet, LipschitzNetwork, OrthogonalLinear

LIPSCHITZ_CIFAR10 = find_experiment("lipschitz-cifar10")
LIPSCHITZ_DIGITS = find_experiment("lipschitz-digits")

# Trained, attacked and certified, on small data made here and on the embedded digits.


def small_network() -> LipConvNet:
    return LipConvNet(2, width=4, num_blocks=2, image=(1, 8, 8), last_layer=OrthogonalLinear)


def test_logistic_regression_is_certified_below_its_exact_radii(tmp_path: Path) -> None:
    radii = (Fraction(36, 255), Fraction(1, 1))
    row = CertifiedBaseline("digits", 100, radii).run(RunContext(tmp_path, None, 60.0, ignore))
    data = load_data_set("digits")
    inputs, labels = first_samples(data, 100)
    model = fitted_regression(*flat(in_pixels(data).train), 10).double()
    logits, weight = model(inputs.flatten(1).double()).detach(), model.weight.detach()
    right = torch.arange(100)
    lead = logits[right, labels][:, None] - logits
    distance = (weight[labels][:, None] - weight).norm(dim=2)
    distance[right, labels] = 1.0
    lead[right, labels] = math.inf
    exact = (lead / distance).amin(dim=1)  # how far the nearest boundary is
    assert row["clean"] == pytest.approx(100 * float((exact > 0).double().mean()), abs=0.01)
    for radius in radii:
        certified = float(str(row[f"certified {radius_name(radius)}"]))
        attacked = float(str(row[f"attacked {radius_name(radius)}"]))
        safe = 100 * float((exact > float(radius)).double().mean())
        assert certified <= safe + 0.01
        assert safe <= attacked + 0.01


def entry_of(epochs: int, num_samples: int = 40) -> LipschitzEntry:
    setup = TrainingSetup(
        "small", small_network, recipe=Recipe(epochs=epochs, batch_size=64, learning_rate=0.02)
    )
    return LipschitzEntry(setup, "digits", num_samples, published=(82.0, 71.0))


def accuracies(row: Row, kind: str) -> list[float]:
    results = [value for column, value in row.items() if column.startswith(kind)]
    return [float(value) for value in results if isinstance(value, float)]


@pytest.mark.slow
def test_a_row_is_clean_over_attacked_over_certified(tmp_path: Path) -> None:
    row = entry_of(3).run(RunContext(tmp_path, None, 60.0))
    clean, on_all = accuracies(row, "clean")
    attacked, certified = accuracies(row, "attacked"), accuracies(row, "certified")
    assert len(attacked) == len(certified) == 3
    right = round(360 * on_all / 100)  # of all test images, 40 of which are those of `clean`
    assert on_all == round(100 * right / 360, 2)
    assert clean * 40 <= on_all * 360
    assert all(clean >= a >= c for a, c in zip(attacked, certified, strict=True))
    assert attacked == sorted(attacked, reverse=True)
    assert certified == sorted(certified, reverse=True)
    assert clean > 50
    assert row["samples trained on"] == 3 * 1437
    assert (row["published clean"], row["published attacked"]) == (82.0, 71.0)
    assert (tmp_path / "training").is_dir()
    assert (row["attacked"], row["certified"]) == (attacked, certified)
    assert row["radii"] == [36 / 255, 72 / 255, 108 / 255]
    # Run in float64 no image is lost; in float32 some may be, of 40.
    assert row["lost to rounding"] == 0
    lost = row["lost to rounding in float32"]
    assert isinstance(lost, float)
    assert 0 <= lost <= 100
    assert row["Lipschitz"] == pytest.approx(1, abs=1e-10)


@pytest.mark.slow
def test_a_run_that_was_interrupted_gives_the_same_row(tmp_path: Path) -> None:
    whole = entry_of(2, 8).run(RunContext(tmp_path / "whole", None, 60.0))

    def stop_in_the_second_epoch(progress: Progress) -> None:
        if progress.what.startswith("epoch 2"):
            raise KeyboardInterrupt

    folder = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        entry_of(2, 8).run(RunContext(folder, None, 60.0, stop_in_the_second_epoch))
    assert entry_of(2, 8).run(RunContext(folder, None, 60.0)) == whole


@pytest.mark.slow
def test_another_seed_is_another_run(tmp_path: Path) -> None:
    first, second = (
        replace(entry_of(1, 8), seed=seed).run(RunContext(tmp_path / str(seed), None, 60.0))
        for seed in (0, 1)
    )
    assert first != second


def test_images_are_handed_over_as_pixels() -> None:
    images = torch.tensor([[0, 51, 255]], dtype=torch.uint8).reshape(1, 1, 1, 3).expand(4, 3, 1, 3)
    part = TensorData(images, torch.arange(4), None, IMAGENET_NORMALIZATION)
    data = DataSet("made", part, part, num_classes=4)
    inputs, labels = first_samples(data, 2)
    assert inputs[0, 0, 0].tolist() == pytest.approx([0.0, 0.2, 1.0])
    assert labels.tolist() == [0, 1]
    assert in_pixels(data).train.normalize == in_pixels(data).test.normalize
    plain = replace(data, train=TensorData(images), test=TensorData(images))
    assert in_pixels(plain).train.normalize is None
    with pytest.raises(ExperimentError, match="made has 4 test samples, but 5 are wanted"):
        first_samples(data, 5)


def test_radii_are_named_in_steps_of_a_pixel() -> None:
    assert radius_name(Fraction(108, 255)) == "108/255"
    assert radius_name(Fraction(1)) == "255/255"
    assert radius_name(Fraction(1, 7)) == "1/7"


def test_the_recipe_is_that_of_the_source() -> None:
    assert (SOURCE_RECIPE.epochs, SOURCE_RECIPE.batch_size) == (200, 256)
    assert math.isclose(SOURCE_RECIPE.learning_rate, 0.01)
    assert TrainingSetup("usual", small_network, cross_entropy).recipe == SOURCE_RECIPE


# Lipschitz digits.


def test_certified_networks_stand_beside_usual_ones_on_the_whole_test_set() -> None:
    names = [entry.name for entry in LIPSCHITZ_DIGITS.entries]
    assert names[-2:] == ["usual", "usual-adversarial"]
    assert len(load_data_set("digits").test) == NUM_DIGITS_SAMPLES
    assert names[0] == "baseline-digits-logistic-regression"
    for entry in LIPSCHITZ_DIGITS.entries[1:]:
        assert isinstance(entry, LipschitzEntry)
        assert entry.setup.build()(torch.rand(2, 1, 8, 8)).shape == (2, 10)


# Lipschitz cifar10.


ENTRIES = [entry for entry in LIPSCHITZ_CIFAR10.entries if isinstance(entry, LipschitzEntry)]
USUAL = [entry for entry in ENTRIES if entry.name.startswith("usual")]
CERTIFIED = [entry for entry in ENTRIES if entry not in USUAL]


def test_every_network_is_trained_by_both_protocols() -> None:
    names = [entry.name for entry in CERTIFIED]
    scaled = [name.removesuffix("-scaled") for name in names if name.endswith("-scaled")]
    assert scaled == ["resnet9-8", "resnet9-8-longer"]
    newer = {f"resnet9-8-longer-{parts}" for parts in ("abs", "reflector")}
    assert {*names} - {f"{name}-scaled" for name in scaled} == {*scaled, *newer}


@pytest.mark.slow
def test_the_published_protocol_makes_networks_four_times_as_steep_in_pixels() -> None:
    for entry in CERTIFIED:
        is_scaled = entry.name.endswith("-scaled")
        assert entry.published is None or is_scaled
        model = entry.setup.build()
        assert isinstance(model, LipschitzNetwork)
        assert model.lipschitz_constant == pytest.approx(1 / 0.2435 if is_scaled else 1.0)
    assert scaling(is_scaled=False).lipschitz_constant == 1.0


def test_a_usual_network_is_trained_with_and_without_attacks() -> None:
    plain, adversarial = USUAL
    assert not isinstance(plain.setup.loss, AdversarialLoss)
    assert isinstance(adversarial.setup.loss, AdversarialLoss)
    assert usual_network()(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_all_rows_see_as_many_images_but_those_that_say_otherwise() -> None:
    for entry in ENTRIES:
        wanted = LONGER if "longer" in entry.name else TRAINED_ON
        assert entry.setup.recipe.max_samples == wanted


def test_the_quick_version_is_on_embedded_data_by_both_protocols() -> None:
    constants = []
    for entry in LIPSCHITZ_CIFAR10.quick:
        assert isinstance(entry, LipschitzEntry)
        assert entry.data_set == "digits"
        model = entry.setup.build()
        assert isinstance(model, LipschitzNetwork)
        constants.append(model.lipschitz_constant)
    assert constants == pytest.approx([1 / 0.376, 1.0])


def test_what_rounding_costs_is_that_of_the_network_it_costs_most() -> None:
    rows: list[Row] = [
        {"network": network, "lost to rounding": 0.0, "lost to rounding in float32": lost}
        for network, lost in (("a", 0.2), ("a", 0.4), ("b", 0.0), ("b", 0.5))
    ]
    (said,) = lost_certificates(rows)
    assert str(said).endswith("at most 0 points in float64, at most 0.3 points in float32 (a).")
    assert not lost_certificates([{"network": "a", "lost to rounding": 0.0}])


def test_the_loss_is_chosen_on_images_that_are_not_trained_on(tmp_path: Path) -> None:
    trained = {"small": 0, "large": 0}

    def noted(name: str, margin: float) -> Callable[[nn.Module, Batch], Tensor]:
        def loss(model: nn.Module, batch: Batch) -> Tensor:
            trained[name] += batch.num_samples
            return MarginLoss(margin)(model, batch)

        return loss

    recipe = Recipe(batch_size=64, learning_rate=0.02)
    losses = {"small": noted("small", 0.01), "large": noted("large", 2.0)}
    entry = SearchedLipschitzEntry(
        TrainingSetup("small", small_network, recipe=recipe),
        "digits",
        40,
        search=LossSearch(losses, small_network, recipe, num_validation=400),
        augment=PadCropFlip(1),
    )
    train = in_pixels(load_data_set("digits")).train
    prepared, loss, row = entry.prepared(train, RunContext(tmp_path, None, 60.0))
    assert set(trained.values()) == {len(train) - 400}
    scores = {name: row[f"validation, {name}"] for name in losses}
    assert row["loss"] == max(scores, key=lambda name: float(str(scores[name])))
    assert loss is losses[str(row["loss"])]
    assert prepared.augment == PadCropFlip(1)


@given(st.integers(0, 2**20), st.fractions(Fraction(1, 20), Fraction(2)))
def test_what_a_trial_proves_is_counted_image_by_image(seed: int, radius: Fraction) -> None:
    torch.manual_seed(seed)
    images, labels = torch.rand(9, 1, 8, 8), torch.randint(10, (9,))
    model = small_network().eval()
    search = LossSearch({}, small_network, Recipe(), 9, radius)
    proved = 0
    for image, label in zip(images, labels, strict=True):
        logits = model(image[None])[0].tolist()
        right = logits.pop(int(label))
        proved += right - max(logits) > math.sqrt(2) * float(radius)
    assert search.proved(model, TensorData(images, labels)) == proved / 9
