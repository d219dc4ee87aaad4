"""Norms of inputs, growths and cushions, as their definitions say."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from tests.generalize.strategies import Recipe, drawn, random_network, recipes
from torch import nn

from rankscope.errors import GeneralizationError
from rankscope.factorize import CPLinear
from rankscope.generalize import Sample, measure_activations, trace_layers
from rankscope.generalize.layer_trace import cushions


def test_norms_are_those_of_the_inputs_of_layers() -> None:
    found = drawn(random_network(0, has_normalization=True), 0)
    model, inputs = found.model, found.sample.inputs
    assert isinstance(model, nn.Sequential)
    second, third = model[:3](inputs), model[:-1](inputs)
    expected = torch.stack([part.flatten(1).norm(dim=1) for part in (inputs, second, third)], dim=1)
    torch.testing.assert_close(found.activations.inputs, expected.detach())
    torch.testing.assert_close(found.activations.outputs, model(inputs).detach())
    lengths = found.activations.lengths
    torch.testing.assert_close(lengths[:, 3], model(inputs).norm(dim=1).detach())
    assert found.activations.largest_output == float(lengths[:, 3].max())


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(recipe=recipes())
def test_cushions_hold_for_every_sample_and_are_attained(recipe: Recipe) -> None:
    """With the kernel's norm, batch normalization folded in; the product is all that counts."""
    found = recipe.drawn()
    lengths = found.activations.lengths
    for number, (layer, cushion) in enumerate(
        zip(found.trace.layers, cushions(found.trace, found.activations).tolist(), strict=True)
    ):
        norm = float(layer.components.to_dense().norm())
        ratios = lengths[:, number + 1] / (norm * lengths[:, number])
        assert cushion == pytest.approx(float(ratios.min()))


@settings(deadline=None, max_examples=10)
@given(recipe=recipes())
def test_inputs_are_at_most_the_output_over_all_later_growths(recipe: Recipe) -> None:
    activations = recipe.drawn().activations
    if float(activations.growths.min()) == 0:
        return
    products = activations.growths.flip(0).cumprod(0).flip(0)
    assert (activations.inputs <= activations.lengths[:, -1:] / products * (1 + 1e-9)).all()


def dead_network() -> nn.Sequential:
    model: Any = nn.Sequential(CPLinear(2, 3, rank=2), nn.ReLU(), CPLinear(3, 2, rank=2)).double()
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    assert isinstance(model, nn.Sequential)
    return model


def test_a_dead_layer_has_cushion_zero_and_the_next_one_none() -> None:
    trace = trace_layers(dead_network(), (2,))
    sample = Sample(torch.ones(3, 2), torch.zeros(3, dtype=torch.long))
    activations = measure_activations(trace, sample)
    assert activations.growths.tolist() == [0.0, float("inf")]
    assert cushions(trace, activations)[0] == 0.0


def test_batches_do_not_change_what_is_measured() -> None:
    found = drawn(random_network(1), 1)
    other = measure_activations(found.trace, found.sample, batch_size=100)
    torch.testing.assert_close(other.inputs, found.activations.inputs)
    torch.testing.assert_close(other.outputs, found.activations.outputs)


def test_labels_that_are_no_classes_are_refused() -> None:
    found = drawn(random_network(2), 2)
    labels = torch.full((7,), 3)
    with pytest.raises(GeneralizationError, match=r"labels must be 0\.\.2 .*got 3 to 3"):
        measure_activations(found.trace, Sample(found.sample.inputs, labels))


def test_activations_that_overflow_are_refused() -> None:
    trace = trace_layers(dead_network().float(), (2,))
    sample = Sample(torch.full((2, 2), 3e38), torch.zeros(2, dtype=torch.long))
    with pytest.raises(GeneralizationError, match="not finite on 2 of 2 samples"):
        measure_activations(trace, sample)
