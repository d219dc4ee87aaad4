"""Bounds without constants: the formulas, and what is said about them."""

import json
import math

import pytest
from tests.generalize.strategies import drawn, random_network

from rankscope.errors import GeneralizationError
from rankscope.generalize import (
    GeneralizationBound,
    choose_ranks,
    compression_order,
    margin_loss,
    parameter_counting,
    slides_order,
)
from rankscope.theorem import Theorem


def test_the_orders_are_their_formulas() -> None:
    found = drawn(random_network(0), 0)
    activations, size = found.activations, 7
    choice = choose_ranks(found.trace, [2, 3, 1])
    loss = margin_loss(activations.outputs, activations.labels, 0.5)
    kept = 2 * (3 + 4 + 9 + 1) + 3 * (4 + 4 + 9 + 1) + (36 + 3 + 1)
    count = sum(weight.numel() for weight in found.model.parameters())
    for bound, complexity in (
        (compression_order(choice, activations, 0.5), math.sqrt(kept / size)),
        (slides_order(choice, activations, 0.5), math.sqrt(6 / size)),
        (parameter_counting(found.model, activations, 0.5), math.sqrt(count / size)),
    ):
        assert bound.value == pytest.approx(loss + complexity)
        assert bound.empirical == loss
        assert not bound.is_rigorous
        assert dict(bound.constants)["complexity"] == pytest.approx(complexity)
        assert "constants left out" in str(bound)


def test_a_margin_of_zero_is_refused() -> None:
    found = drawn(random_network(1), 1)
    choice = choose_ranks(found.trace, [1, 1, 1])
    with pytest.raises(GeneralizationError, match=r"got 0\.0"):
        compression_order(choice, found.activations, 0.0)


@pytest.mark.parametrize(("value", "is_vacuous"), [(0.99, False), (1.0, True), (math.inf, True)])
def test_a_bound_says_plainly_when_it_is_vacuous(value: float, is_vacuous: bool) -> None:
    theorem = Theorem("Nobody (1900)", "Thm 1", None, ("anything",))
    bound = GeneralizationBound("some", value, 0.1, theorem, True, (("samples", math.inf),))
    assert bound.is_vacuous is is_vacuous
    assert ("vacuous" in str(bound)) is is_vacuous
    document = json.loads(json.dumps(bound.to_dict(), allow_nan=False))
    assert document["vacuous"] is is_vacuous
    assert document["value"] == (None if math.isinf(value) else value)
    assert document["constants"] == {"samples": None}
    assert document["theorem"]["assumptions"] == ["anything"]
