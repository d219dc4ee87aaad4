"""The bound from spectral norms."""

import math
from typing import Any

import pytest
import torch
from tests.generalize.strategies import drawn, random_network
from torch import nn

from rankscope.errors import GeneralizationError, UnsupportedModuleError
from rankscope.factorize import CPLinear
from rankscope.generalize import (
    Sample,
    margin_loss,
    measure_activations,
    spectral_order,
    trace_layers,
)
from rankscope.robust import as_matrix


def test_the_bound_of_matrices_is_its_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    model: Any = nn.Sequential(
        CPLinear(4, 5, rank=3, generator=generator),
        nn.ReLU(),
        CPLinear(5, 3, rank=2, generator=generator),
    ).double()
    inputs = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    sample = Sample(inputs, torch.zeros(6, dtype=torch.long))
    trace = trace_layers(model, (4,))
    activations = measure_activations(trace, sample)
    weights = [part.to_dense().weight.detach() for part in (model[0], model[2])]
    norms = [float(torch.linalg.matrix_norm(weight, 2)) for weight in weights]
    rows = [float(weight.norm(dim=1).sum()) for weight in weights]
    ratios = sum((row / norm) ** (2 / 3) for row, norm in zip(rows, norms, strict=True)) ** 1.5
    complexity = float(inputs.norm()) * math.prod(norms) * ratios / (0.5 * 6)
    loss = margin_loss(activations.outputs, sample.labels, 0.5)
    bound = spectral_order(trace, activations, 0.5)
    assert bound.value == pytest.approx(loss + complexity)


def test_rows_of_a_circular_convolution_are_those_of_its_matrix() -> None:
    found = drawn(random_network(1, is_circular=True), 1)
    model: Any = found.model
    bound = spectral_order(found.trace, found.activations, 1.0)
    dense = [model[0].to_dense(), model[2].to_dense(), model[-1].to_dense()]
    shapes = [(3, 6, 6), (4, 6, 6), (36,)]
    matrices = [as_matrix(layer, shape) for layer, shape in zip(dense, shapes, strict=True)]
    norms = [float(torch.linalg.matrix_norm(matrix, 2)) for matrix in matrices]
    rows = [float(matrix.norm(dim=1).sum()) for matrix in matrices]
    ratios = sum((row / norm) ** (2 / 3) for row, norm in zip(rows, norms, strict=True)) ** 1.5
    length = float(found.sample.inputs.norm())
    complexity = dict(bound.constants)["complexity"]
    assert complexity == pytest.approx(length * math.prod(norms) * ratios / 7)


def test_residual_networks_are_refused_by_name() -> None:
    found = drawn(random_network(2, is_residual=True), 2)
    with pytest.raises(UnsupportedModuleError, match=r"add \(in 2\): .*proved for chains"):
        spectral_order(found.trace, found.activations, 1.0)


def test_a_margin_of_zero_is_refused() -> None:
    found = drawn(random_network(3), 3)
    with pytest.raises(GeneralizationError, match=r"got 0\.0"):
        spectral_order(found.trace, found.activations, 0.0)
