"""The network that keeps some components, and its checked distance."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from tests.generalize.strategies import RANKS, Recipe, drawn, random_network, recipes
from torch import nn

from rankscope.errors import GeneralizationError
from rankscope.factorize import CPConv2d, CPLinear
from rankscope.generalize import (
    AsPublished,
    Euclidean,
    LargestEntry,
    RankChoice,
    check_deviation,
    choose_ranks,
    outputs_of,
    trace_layers,
)
from rankscope.generalize.compressed_network import compressed_network
from rankscope.networks import in_cp_form


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(recipe=recipes(), ranks=RANKS)
def test_layers_keep_their_first_components_and_nothing_else_changes(
    recipe: Recipe, ranks: tuple[int, int, int]
) -> None:
    found = recipe.drawn()
    smaller = compressed_network(found.model, found.trace, ranks)
    read = trace_layers(smaller, tuple(found.sample.inputs.shape[1:]))
    for layer, other, rank in zip(found.trace.layers, read.layers, ranks, strict=True):
        assert other.rank == rank
        expected = layer.components.taken(slice(rank)).to_dense()
        torch.testing.assert_close(other.components.to_dense(), expected)
        torch.testing.assert_close(other.constant(), layer.constant())


def test_all_components_give_the_same_outputs_with_normalizations_folded() -> None:
    found = drawn(random_network(0, is_residual=True, has_normalization=True), 0)
    whole = compressed_network(
        found.model, found.trace, [layer.rank for layer in found.trace.layers]
    )
    assert not any(isinstance(module, nn.BatchNorm2d) for module in whole.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in found.model.modules())
    torch.testing.assert_close(outputs_of(whole, found.sample.inputs), found.activations.outputs)


def test_normalizations_that_are_no_modules_stay() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = CPConv2d(1, 2, 3, rank=2, padding=1)
            self.variance = nn.Buffer(torch.tensor([0.5, 2.0]))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            mean = torch.zeros(2)
            made = nn.functional.batch_norm(self.layer(inputs), mean, self.variance)
            return made.flatten(1)

    model, inputs = Own(), torch.randn(3, 1, 4, 4)
    trace = trace_layers(model, (1, 4, 4))
    assert trace.layers[0].normalization is not None
    whole = compressed_network(model, trace, [2])
    torch.testing.assert_close(outputs_of(whole, inputs), outputs_of(model, inputs))


def test_a_layer_alone_and_matrices_of_one_by_one_kernels_are_compressed() -> None:
    layer: Any = CPLinear(5, 4, rank=3).double()
    smaller = compressed_network(layer, trace_layers(layer, (5,)), [1])
    torch.testing.assert_close(
        smaller(torch.eye(5).double()).T - layer.bias[:, None],
        layer.normalized().taken(slice(1)).to_dense(),
    )
    dense = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten()).double()
    model, inputs = in_cp_form(dense), torch.randn(2, 3, 2, 2, dtype=torch.float64)
    whole = compressed_network(model, trace_layers(model, (3, 2, 2)), [3])
    torch.testing.assert_close(whole(inputs), dense(inputs))


def test_outputs_leave_the_mode_of_a_network_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train()
    first, second = (outputs_of(model, torch.ones(5, 2), batch_size=2) for _ in range(2))
    assert torch.equal(first, second)
    assert model.training


def test_a_deviation_is_what_was_measured_and_what_was_promised() -> None:
    found = drawn(random_network(1), 1)
    choice = choose_ranks(found.trace, [4, 5, 2])
    outputs = outputs_of(
        compressed_network(found.model, found.trace, choice.ranks), found.sample.inputs
    )
    difference = outputs - found.activations.outputs
    for tolerance in (LargestEntry(), Euclidean(), AsPublished()):
        deviation = check_deviation(
            outputs, found.activations, choice, margin=2.0, tolerance=tolerance
        )
        assert deviation.largest == float(difference.abs().max())
        assert deviation.euclidean == pytest.approx(float(difference.norm(dim=1).max()))
        assert deviation.bound == float(choice.error_bounds(found.activations).max())
        assert deviation.allowed == tolerance.allowed(2.0)
        assert deviation.lost_margin == float(tolerance.lost(difference).max())
        changed = outputs.argmax(dim=1) != found.activations.outputs.argmax(dim=1)
        assert deviation.num_changed == int(changed.sum())
        assert deviation.to_dict() == dataclasses.asdict(deviation)


def test_a_bound_that_does_not_hold_is_an_error() -> None:
    found = drawn(random_network(2), 2)
    choice = choose_ranks(found.trace, [1, 1, 1])
    honest = compressed_network(found.model, found.trace, choice.ranks)
    outputs = outputs_of(honest, found.sample.inputs)
    lying = RankChoice(
        tuple(dataclasses.replace(layer, noise=layer.noise * 1e-9) for layer in choice.layers)
    )
    with pytest.raises(GeneralizationError, match="of 7 samples g is further from f than proved"):
        check_deviation(outputs, found.activations, lying, margin=1.0, tolerance=LargestEntry())
