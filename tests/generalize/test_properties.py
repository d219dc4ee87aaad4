"""Tensorization factors, noise bounds and Fourier factors against true operator norms."""

import pytest
import torch
from hypothesis import given, settings
from tests.generalize.strategies import RANKS, Recipe, drawn, random_network, recipes
from torch import nn

from rankscope.errors import GeneralizationError
from rankscope.factorize import CPConv2d, CPLinear
from rankscope.generalize import (
    CPLayer,
    Exact,
    Triangle,
    fourier_factors,
    kernel_spectra,
    trace_layers,
)
from rankscope.robust import as_matrix

ROUNDING = 1 + 1e-9


def true_norm(layer: CPLayer, start: int, stop: int) -> float:
    """Of the layer with some components, written out as a matrix on its own inputs."""
    dense = layer.module.to_dense().double()
    weight = layer.components.taken(slice(start, stop)).to_dense()
    dense.weight = nn.Parameter(weight)
    return float(torch.linalg.matrix_norm(as_matrix(dense, layer.input.shape[1:]), 2))


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(recipe=recipes(), ranks=RANKS)
def test_true_norms_are_below_the_exact_form_and_that_below_the_triangle_form(
    recipe: Recipe, ranks: tuple[int, int, int]
) -> None:
    for layer, rank in zip(recipe.drawn().trace.layers, ranks, strict=True):
        triangle, exact = Triangle().of(layer), Exact().of(layer)
        fourier = fourier_factors(triangle)
        for start, stop, sharp, loose in (
            (0, rank, exact.factor(rank), triangle.factor(rank)),
            (rank, layer.rank, exact.noise(rank), triangle.noise(rank)),
        ):
            norm = true_norm(layer, start, stop) if start < stop else 0.0
            assert norm <= sharp * ROUNDING
            assert sharp <= loose * ROUNDING
        kept = float(fourier.factors[rank - 1] * fourier.etas[rank - 1].sqrt())
        dropped = float(fourier.noises[rank - 1] * fourier.thetas[rank - 1].sqrt())
        assert exact.factor(rank) <= kept * ROUNDING
        assert exact.noise(rank) <= dropped * ROUNDING


def test_the_exact_form_is_exact_for_circular_convolutions_and_matrices() -> None:
    found = drawn(random_network(0, is_circular=True, stride=2), 0)
    for layer in found.trace.layers:
        exact = Exact().of(layer)
        for rank in range(1, layer.rank + 1):
            assert exact.factor(rank) == pytest.approx(true_norm(layer, 0, rank))


def test_one_component_has_the_same_norm_in_both_forms() -> None:
    layer = drawn(random_network(5, is_circular=True), 5).trace.layers[0]
    assert Exact().of(layer).factor(1) == pytest.approx(Triangle().of(layer).factor(1))


@pytest.mark.slow
def test_the_triangle_form_is_the_definition() -> None:
    """alpha by an FFT at the layer's own size, or at the size that has room for the zeros."""
    for is_circular, side in ((True, 6), (False, 8)):
        layer = drawn(random_network(6, is_circular=is_circular), 6).trace.layers[0]
        spectra = torch.fft.fft2(layer.components.kernels, s=(side, side)).abs()
        terms = layer.components.weights * spectra.flatten(1).amax(dim=1)
        properties = Triangle().of(layer)
        for rank in range(1, layer.rank + 1):
            assert properties.factor(rank) == pytest.approx(float(terms[:rank].sum()))
            assert properties.noise(rank) == pytest.approx(float(terms[rank:].sum()), abs=1e-12)
        assert properties.noise(layer.rank) == 0.0


def test_fourier_factors_are_their_definition() -> None:
    layer = drawn(random_network(7, is_circular=True), 7).trace.layers[1]
    powers = torch.fft.fft2(layer.components.kernels, s=(6, 6)).abs().square().flatten(1)
    found = fourier_factors(Triangle().of(layer))
    weights = layer.components.weights
    for rank in range(1, layer.rank + 1):
        expected = [
            weights[:rank].norm(),
            weights[rank:].norm(),
            powers[:rank].sum(dim=0).max(),
            powers[rank:].sum(dim=0).max(),
        ]
        parts = (found.factors, found.noises, found.etas, found.thetas)
        torch.testing.assert_close(
            torch.stack([part[rank - 1] for part in parts]), torch.stack(expected)
        )


def test_a_kernel_wider_than_its_image_is_wrapped_around() -> None:
    layer = CPConv2d(2, 2, 5, rank=3, padding=2, padding_mode="circular").double()
    trace = trace_layers(nn.Sequential(layer, nn.Flatten()), (2, 2, 2))
    assert kernel_spectra(trace.layers[0]).shape == (4, 3)
    for rank in (1, 2, 3):
        norm = true_norm(trace.layers[0], 0, rank)
        assert Exact().of(trace.layers[0]).factor(rank) == pytest.approx(norm)


def test_few_ranks_are_looked_at_and_the_last_is_all() -> None:
    layer = trace_layers(CPLinear(30, 20, rank=17).double(), (30,)).layers[0]
    assert Exact(4).of(layer).ranks == (5, 9, 13, 17)
    assert Exact(40).of(layer).ranks == tuple(range(1, 18))
    assert Triangle().of(layer).ranks == tuple(range(1, 18))


def test_the_monotone_form_never_falls_and_is_attained() -> None:
    layer = drawn(random_network(8), 8).trace.layers[1]
    plain, monotone = Exact().of(layer), Exact(is_monotone=True).of(layer)
    largest = 0.0
    for rank in range(1, layer.rank + 1):
        largest = max(largest, plain.factor(rank))
        assert monotone.factor(rank) == largest


def test_a_form_without_ranks_is_refused() -> None:
    with pytest.raises(GeneralizationError, match="at least 1, got 0"):
        Exact(0)
