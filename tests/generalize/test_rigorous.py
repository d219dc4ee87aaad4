"""A bound that holds: the formula, and how often it fails."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.errors import GeneralizationError
from rankscope.generalize import (
    Chernoff,
    Hoeffding,
    Quantization,
    quantize_network,
    relative_entropy,
    rigorous_bound,
)


def test_the_bound_is_its_formula() -> None:
    network = quantize_network(nn.Linear(3, 2), Quantization(4))
    bound = rigorous_bound(network, 0.125, 1000, layer_ranks=[4, 9], num_settings=6, chance=0.01)
    nats = network.log_size + math.log(5) + math.log(10) + math.log(6) + math.log(100)
    assert bound.value == pytest.approx(0.125 + math.sqrt(nats / 2000))
    assert bound.is_rigorous
    assert bound.empirical == 0.125
    assert "error <=" in str(bound)
    assert "union bound" in bound.theorem.label


@settings(deadline=None)
@given(
    empirical=st.floats(0.0, 1.0),
    nats=st.floats(0.01, 1000.0),
    size=st.integers(1, 1000),
)
def test_relative_entropy_is_never_worse_than_hoeffding(
    empirical: float, nats: float, size: int
) -> None:
    """Pinsker's inequality."""
    sharp = Chernoff().error(empirical, nats, size)
    assert empirical <= sharp <= min(1.0, Hoeffding().error(empirical, nats, size)) + 1e-12
    if sharp < 1 - 1e-6:  # nearer to 1 its logarithm is all rounding
        assert relative_entropy(empirical, sharp) == pytest.approx(nats / size, rel=1e-3)


@pytest.mark.parametrize("concentration", [Hoeffding(), Chernoff()])
@pytest.mark.parametrize("error", [0.05, 0.5])
def test_one_fixed_classifier_breaks_its_bound_no_more_often_than_promised(
    concentration: Hoeffding | Chernoff, error: float
) -> None:
    """Exactly, by the binomial distribution."""
    size, chance = 40, 0.1
    broken = sum(
        math.comb(size, wrong) * error**wrong * (1 - error) ** (size - wrong)
        for wrong in range(size + 1)
        if concentration.error(wrong / size, math.log(1 / chance), size) < error
    )
    assert broken <= chance


def test_a_tiny_class_on_many_samples_is_not_vacuous() -> None:
    network = quantize_network(nn.Linear(2, 2, bias=False), Quantization(2))
    torch.testing.assert_close(network.num_parameters, 4)
    assert not rigorous_bound(network, 0.0, 100_000).is_vacuous
    assert rigorous_bound(network, 0.0, 2).is_vacuous
    sharp = rigorous_bound(network, 0.0, 1000, concentration=Chernoff())
    assert sharp.value < rigorous_bound(network, 0.0, 1000).value


@pytest.mark.parametrize(
    ("empirical", "size", "settings_tried", "chance"),
    [(1.5, 10, 1, 0.1), (0.0, 0, 1, 0.1), (0.0, 10, 0, 0.1), (0.0, 10, 1, 1.0)],
)
def test_what_is_no_probability_or_count_is_refused(
    empirical: float, size: int, settings_tried: int, chance: float
) -> None:
    network = quantize_network(nn.Linear(2, 2), Quantization(2))
    with pytest.raises(
        GeneralizationError,
        match=f"error {empirical}, chance {chance}, {size} samples and {settings_tried} settings",
    ):
        rigorous_bound(network, empirical, size, num_settings=settings_tried, chance=chance)
