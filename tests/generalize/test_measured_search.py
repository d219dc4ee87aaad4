"""Ranks that are checked on the sample instead of proved."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generalize.strategies import Recipe, drawn, random_network, recipes

from rankscope.errors import GeneralizationError
from rankscope.generalize import (
    Euclidean,
    LargestEntry,
    Search,
    Tolerance,
    find_measured_ranks,
    outputs_of,
)
from rankscope.generalize.compressed_network import compressed_network
from rankscope.progress import Progress


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(
    recipe=recipes(),
    margin=st.floats(0.01, 100.0),
    tolerance=st.sampled_from((LargestEntry(), Euclidean())),
)
def test_no_margin_loses_more_than_allowed(
    recipe: Recipe, margin: float, tolerance: Tolerance
) -> None:
    found = recipe.drawn()
    choice = find_measured_ranks(
        found.model,
        found.trace,
        found.activations,
        found.sample,
        margin,
        search=Search(tolerance=tolerance),
    )
    network = compressed_network(found.model, found.trace, choice.ranks)
    lost = tolerance.lost(outputs_of(network, found.sample.inputs) - found.activations.outputs)
    assert float(lost.max()) <= margin + 1e-9


def test_a_large_margin_keeps_one_component_and_a_small_one_all() -> None:
    found = drawn(random_network(1), 1)
    reports: list[Progress] = []
    ranks = [
        find_measured_ranks(
            found.model, found.trace, found.activations, found.sample, margin, report=reports.append
        ).ranks
        for margin in (1e6, 1e-9)
    ]
    assert ranks == [(1, 1, 1), (5, 6, 3)]
    assert [str(progress) for progress in reports[:3]] == [f"ranks: {n} of 3" for n in (1, 2, 3)]


def test_a_margin_of_zero_is_refused() -> None:
    found = drawn(random_network(2), 2)
    with pytest.raises(GeneralizationError, match=r"got 0\.0"):
        find_measured_ranks(found.model, found.trace, found.activations, found.sample, 0.0)
