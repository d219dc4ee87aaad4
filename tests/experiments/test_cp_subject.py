"""Small networks, plain and with CP layers."""

from pathlib import Path

import pytest
import torch
from torch import nn

from rankscope.errors import ExperimentError
from rankscope.experiments.cp_networks import TrainingWorkload, inputs_and_labels, small_network
from rankscope.training.batches import PadCropFlip, TensorData
from rankscope.training.datasets import DataSet


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
        "rankscope.experiments.cp_networks.load_data_set", lambda name, folder: images()
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
