"""Backward rank search, and the error bound (*) that it relies on."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generalize.strategies import RANKS, Drawn, Recipe, drawn, random_network, recipes
from torch import nn

from rankscope.errors import GeneralizationError
from rankscope.factorize import CPLinear
from rankscope.generalize import (
    AsPublished,
    CushionLimits,
    Direct,
    Euclidean,
    Exact,
    Form,
    LargestEntry,
    Sample,
    Search,
    Triangle,
    choose_ranks,
    find_ranks,
    margins,
    measure_activations,
    trace_layers,
)
from rankscope.generalize.compressed_network import compressed_network

FORMS = (Triangle(), Exact(), Exact(is_monotone=True))
MODES = (Direct(), CushionLimits())
ROUNDING = 1e-9


def is_alive(found: Drawn) -> bool:
    return float(found.activations.growths.min()) > 0


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(recipe=recipes(), ranks=RANKS, form=st.sampled_from(FORMS))
def test_no_compressed_network_is_further_away_than_the_error_bound(
    recipe: Recipe, ranks: tuple[int, int, int], form: Form
) -> None:
    """(*), for circular and zero padding, strides, residuals and batch normalization."""
    found = recipe.drawn()
    choice = choose_ranks(found.trace, ranks, form=form)
    smaller = compressed_network(found.model, found.trace, ranks)
    with torch.no_grad():
        distances = (smaller(found.sample.inputs) - found.activations.outputs).norm(dim=1)
    assert (distances <= choice.error_bounds(found.activations) * (1 + ROUNDING) + ROUNDING).all()


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    recipe=recipes(),
    margin=st.floats(0.1, 1000.0),
    form=st.sampled_from(FORMS),
    mode=st.sampled_from(MODES),
    tolerance=st.sampled_from((LargestEntry(), Euclidean(), AsPublished())),
)
def test_every_sample_above_the_threshold_is_classified_alike(
    recipe: Recipe,
    margin: float,
    form: Form,
    mode: Direct | CushionLimits,
    tolerance: LargestEntry | Euclidean | AsPublished,
) -> None:
    found = recipe.drawn()
    if isinstance(mode, CushionLimits) and not is_alive(found):
        return
    choice = find_ranks(found.trace, found.activations, margin, Search(mode, form, tolerance))
    bounds = choice.error_bounds(found.activations)
    assert float(bounds.max()) <= tolerance.allowed(margin) * (1 + ROUNDING)
    smaller = compressed_network(found.model, found.trace, choice.ranks)
    outputs = found.activations.outputs
    own = outputs.argmax(dim=1)
    is_clear = margins(outputs, own) > tolerance.threshold(margin)
    assert torch.equal(smaller(found.sample.inputs).argmax(dim=1)[is_clear], own[is_clear])


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(
    recipe=recipes(),
    margin=st.floats(0.1, 1000.0),
    larger=st.floats(1.0, 100.0),
    form=st.sampled_from((Triangle(), Exact(is_monotone=True))),
    mode=st.sampled_from(MODES),
)
def test_ranks_fall_as_the_margin_grows(
    recipe: Recipe, margin: float, larger: float, form: Form, mode: Direct | CushionLimits
) -> None:
    found = recipe.drawn()
    if isinstance(mode, CushionLimits) and not is_alive(found):
        return
    search = Search(mode, form)
    few = find_ranks(found.trace, found.activations, margin * larger, search).ranks
    many = find_ranks(found.trace, found.activations, margin, search).ranks
    assert all(a <= b for a, b in zip(few, many, strict=True))


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(recipe=recipes(), margin=st.floats(0.1, 1000.0))
def test_the_direct_mode_never_keeps_more_than_the_paper_mode(
    recipe: Recipe, margin: float
) -> None:
    found = recipe.drawn()
    if not is_alive(found):
        return
    ranks = [
        find_ranks(found.trace, found.activations, margin, Search(mode)).ranks for mode in MODES
    ]
    assert all(direct <= paper for direct, paper in zip(*ranks, strict=True))


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(recipe=recipes(), form=st.sampled_from(FORMS))
def test_a_rank_is_the_smallest_of_those_looked_at(recipe: Recipe, form: Form) -> None:
    """The definition, layer by layer: one rank less would be above the layer's share."""
    found, margin = recipe.drawn(), 50.0
    choice = find_ranks(found.trace, found.activations, margin, Search(form=form))
    share = LargestEntry().allowed(margin) / len(choice.layers)
    longest = found.activations.inputs.amax(dim=0).tolist()
    for layer, read, length in zip(choice.layers, found.trace.layers, longest, strict=True):
        assert layer.noise * layer.gain * length <= share * (1 + ROUNDING)
        for rank in range(1, layer.kept_rank):
            assert form.of(read).noise(rank) * layer.gain * length > share * (1 - ROUNDING)


def test_gains_of_a_chain_are_products_and_of_a_residual_one_more() -> None:
    for is_residual in (False, True):
        found = drawn(random_network(1, is_residual=is_residual), 1)
        first, inner, last = (
            Triangle().of(layer).factor(layer.rank) for layer in found.trace.layers
        )
        choice = choose_ranks(found.trace, [layer.rank for layer in found.trace.layers])
        gains = [layer.gain for layer in choice.layers]
        assert gains[2] == pytest.approx(1.0)
        assert gains[1] == pytest.approx(last)
        assert gains[0] == pytest.approx((1 + inner if is_residual else inner) * last)
        assert first == choice.layers[0].factor


def test_full_ranks_have_no_error_and_count_at_most_the_dense_weights() -> None:
    found = drawn(random_network(2), 2)
    choice = choose_ranks(found.trace, [5, 6, 3])
    assert choice.ranks == (5, 6, 3)
    assert float(choice.error_bounds(found.activations).max()) == 0.0
    assert [layer.num_parameters for layer in choice.layers] == [
        5 * (3 + 4 + 9 + 1),
        6 * (4 + 4 + 9 + 1),
        min(3 * (36 + 3 + 1), 36 * 3),
    ]


def test_a_dead_layer_is_refused_by_name_in_paper_mode_and_free_in_direct_mode() -> None:
    torch.manual_seed(0)  # other weights may happen to be dead on a sample in the first layer, too
    model: Any = nn.Sequential(
        CPLinear(4, 5, rank=3), nn.ReLU(), CPLinear(5, 5, rank=3), nn.ReLU(), CPLinear(5, 3, rank=2)
    ).double()
    with torch.no_grad():
        for core in model[2].cores.parameters():
            core.zero_()
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sample = Sample(inputs, torch.zeros(6, dtype=torch.long))
    trace = trace_layers(model, (4,))
    activations = measure_activations(trace, sample)
    with pytest.raises(GeneralizationError, match="2 is dead on 6 of 6 samples"):
        find_ranks(trace, activations, 1.0, Search(CushionLimits()))
    assert find_ranks(trace, activations, 1.0).ranks == (1, 1, 1)


@pytest.mark.parametrize("margin", [0.0, -1.0, float("nan"), float("inf")])
def test_a_margin_that_is_not_positive_is_refused(margin: float) -> None:
    found = drawn(random_network(3), 3)
    with pytest.raises(GeneralizationError, match=f"positive and finite, got {margin}"):
        find_ranks(found.trace, found.activations, margin)


@pytest.mark.parametrize("ranks", [[1, 1], [0, 1, 1], [6, 1, 1]])
def test_ranks_that_do_not_fit_are_refused(ranks: list[int]) -> None:
    found = drawn(random_network(4), 4)
    with pytest.raises(GeneralizationError, match=r"3 ranks from 1 to \[5, 6, 3\], got"):
        choose_ranks(found.trace, ranks)
