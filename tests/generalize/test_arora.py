"""Noise stability: cushions and Jacobians, against Jacobians that are written out."""

import math
from typing import Any

import pytest
import torch
from tests.generalize.strategies import drawn, random_network
from torch import nn

from rankscope.errors import GeneralizationError, UnsupportedModuleError
from rankscope.factorize import CPLinear
from rankscope.generalize import (
    NoiseStability,
    Sample,
    arora_order,
    margin_loss,
    measure_activations,
    measure_noise_stability,
    trace_layers,
)


def chain() -> tuple[Any, Sample]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((4, 5), (5, 6), (6, 3))
    layers = [CPLinear(a, b, rank=3, generator=generator) for a, b in sizes]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]).double()
    model.requires_grad_(requires_grad=False)
    inputs = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    return model, Sample(inputs, torch.zeros(3, dtype=torch.long))


def test_cushions_of_matrices_are_their_definitions() -> None:
    model, sample = chain()
    found = measure_noise_stability(trace_layers(model, (4,)), sample, num_probes=2)
    inputs = [sample.inputs, model[:2](sample.inputs), model[:4](sample.inputs)]
    outputs = [model[: place + 1](sample.inputs) for place in (0, 2, 4)]
    for number, place in enumerate((0, 2, 4)):
        weight = model[place].to_dense().weight.detach()
        ratios = (inputs[number] @ weight.T).norm(dim=1) / inputs[number].norm(dim=1)
        assert float(found.cushions[number]) == pytest.approx(float(ratios.min() / weight.norm()))
    contraction = max(
        float((outputs[k].norm(dim=1) / inputs[k + 1].norm(dim=1)).max()) for k in (0, 1)
    )
    assert found.contraction == pytest.approx(contraction)
    assert found.spreads.tolist() == [1.0, 1.0, 1.0]
    assert found.patches.tolist() == [1.0, 1.0, 1.0]


def test_interlayer_cushions_come_near_written_out_jacobians() -> None:
    model, sample = chain()
    # The norms are estimates with a relative deviation of at most 1 / sqrt(2 probes): 3 % here.
    found = measure_noise_stability(trace_layers(model, (4,)), sample, num_probes=600)
    for number, (start, ends) in enumerate(((0, (2, 4)), (2, (4,)), (4, ()))):
        smallest = 1 / math.sqrt(model[start].out_features)
        for one in sample.inputs:
            before = model[: start + 1](one)
            for end in ends:
                later = model[start + 1 : end + 1]
                jacobian = torch.func.jacrev(later)(before)
                ratio = (jacobian @ before).norm() / (jacobian.norm() * before.norm())
                smallest = min(smallest, float(ratio))
        assert float(found.interlayer[number]) == pytest.approx(smallest, rel=0.12)


def test_convolutions_count_patches_and_spreads_over_places() -> None:
    found = drawn(random_network(1, stride=2, has_normalization=True), 1)
    stability = measure_noise_stability(found.trace, found.sample, num_probes=2, batch_size=4)
    assert stability.patches.tolist() == [2.0, 3.0, 1.0]
    assert float(stability.spreads.min()) >= 1.0
    # No place can hold more than everything: at most the root of the number of places.
    assert float(stability.spreads[:2].max()) <= math.sqrt(9) + 1e-9
    assert float(stability.spreads[2]) == 1.0
    layer = found.trace.layers[0]
    model: Any = found.model
    outputs = model[:2](found.sample.inputs) - layer.constant()
    ratios = outputs.flatten(1).norm(dim=1) / found.sample.inputs.flatten(1).norm(dim=1)
    expected = math.sqrt(9) * float(ratios.min()) / float(layer.components.to_dense().norm())
    assert float(stability.cushions[0]) == pytest.approx(expected)


def test_the_bound_is_its_formula() -> None:
    model, sample = chain()
    activations = measure_activations(trace_layers(model, (4,)), sample)
    stability = NoiseStability(
        torch.tensor([0.5, 0.25]).double(),
        torch.tensor([0.1, 0.2]).double(),
        torch.tensor([2.0, 1.0]).double(),
        torch.tensor([3.0, 1.0]).double(),
        1.5,
    )
    total = math.sqrt((6 / 0.05) ** 2 + (1 / 0.05) ** 2)
    complexity = 1.5 * 2 * activations.largest_output * total / (0.5 * math.sqrt(3))
    bound = arora_order(stability, activations, 0.5)
    loss = margin_loss(activations.outputs, sample.labels, 0.5)
    assert bound.value == pytest.approx(loss + complexity)


def test_a_dead_layer_makes_it_infinite() -> None:
    model, sample = chain()
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    trace = trace_layers(model, (4,))
    bound = arora_order(
        measure_noise_stability(trace, sample), measure_activations(trace, sample), 1.0
    )
    assert bound.value == math.inf
    assert bound.to_dict()["value"] is None


def test_residual_networks_and_no_probes_are_refused() -> None:
    found = drawn(random_network(2, is_residual=True), 2)
    with pytest.raises(
        UnsupportedModuleError, match=r"add \(in 2\): .*Arora et al\. is proved for chains"
    ):
        measure_noise_stability(found.trace, found.sample)
    model, sample = chain()
    with pytest.raises(GeneralizationError, match="at least 1 probe, got 0"):
        measure_noise_stability(trace_layers(model, (4,)), sample, num_probes=0)


def test_a_margin_of_zero_is_refused() -> None:
    model, sample = chain()
    trace = trace_layers(model, (4,))
    stability = measure_noise_stability(trace, sample)
    with pytest.raises(GeneralizationError, match=r"got 0\.0"):
        arora_order(stability, measure_activations(trace, sample), 0.0)
