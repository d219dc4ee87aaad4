"""Bounds that are measured while a network is trained."""

import pytest
import torch
from torch import nn

from rankscope.compression import EveryFewEpochs, Recipe, cross_entropy, fit
from rankscope.errors import GeneralizationError
from rankscope.factorize import CPConv2d, CPLinear
from rankscope.generalize import Options, Sample, TrackBounds, analyse, usual_searches
from rankscope.networks import TensorData


def network() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    return nn.Sequential(
        CPConv2d(1, 4, 3, rank=4, padding=1, generator=generator),
        nn.ReLU(),
        nn.Flatten(),
        CPLinear(64, 3, rank=3, generator=generator),
    )


def sample(count: int, seed: int) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 1, 4, 4, generator=generator)
    return Sample(inputs, (inputs.flatten(1).sum(dim=1) > 0).long())


@pytest.mark.slow
def test_what_is_tracked_is_what_an_analysis_says() -> None:
    model, train, test = network(), sample(20, 0), sample(10, 1)
    found = TrackBounds(train, test, 0.5)(model)
    for name, options in usual_searches().items():
        assert found[name] == analyse(model, train, 0.5, options=options).bounds[0].value
        kept = dict(analyse(model, train, 0.5, options=options).bounds[0].constants)["parameters"]
        assert found[f"{name} parameters"] == kept
    whole = analyse(model, train, 0.5, options=Options())
    assert found["arora-order"] == whole.bound("arora-order").value
    assert found["margin loss"] == whole.bound("compression-order").empirical
    wrong = model(test.inputs).argmax(dim=1) != test.labels
    assert found["test error"] == float(wrong.double().mean())
    assert found["triangle"] == found["margin loss"] + found["triangle complexity"]
    assert found["exact parameters"] <= found["triangle parameters"]


@pytest.mark.slow
def test_bounds_are_recorded_every_few_epochs_of_training() -> None:
    train, test = sample(20, 0), sample(10, 1)
    track = EveryFewEpochs(TrackBounds(train, test, 1.0), 2)
    data = TensorData(train.inputs, train.labels)
    history = fit(network(), cross_entropy, data, Recipe(epochs=5, batch_size=10), evaluate=track)
    assert [record.epoch for record in history.records if record.metrics] == [2, 4, 5]
    assert history.records[1].metrics["triangle"] >= history.records[1].metrics["margin loss"]


def test_a_margin_of_zero_is_refused_before_training() -> None:
    with pytest.raises(GeneralizationError, match=r"must be positive and finite, got 0\.0"):
        TrackBounds(sample(4, 0), sample(4, 1), 0.0)
