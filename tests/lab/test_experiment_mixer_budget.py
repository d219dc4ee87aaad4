"""Mixers against attention and product layers."""

import pytest
import torch

from rankscope.lab import find_experiment
from rankscope.lab.experiments import Row, statements_of
from rankscope.lab.experiments.mixer_budget import BUDGETS, KINDS, NUM_TOKENS, TOKEN_SIZE, widest
from rankscope.networks import DegreeAttention, MlpMixer


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("budget", BUDGETS)
def test_networks_are_as_wide_as_the_budget_allows(kind: str, budget: int) -> None:
    width = widest(kind, budget)
    counts = [
        sum(p.numel() for p in KINDS[kind].make(each, None).parameters())
        for each in (width, width + 1)
    ]
    assert counts[0] <= budget < counts[1]
    assert KINDS[kind].make(width, None)(torch.randn(3, NUM_TOKENS, TOKEN_SIZE)).shape == (3, 10)


def test_total_degrees_are_those_of_the_polynomials() -> None:
    mixer = KINDS["mixer-square"].make(2, None).eval()
    assert isinstance(mixer, MlpMixer)
    assert mixer.polynomial().input_degree == KINDS["mixer-square"].total_degree
    attention = KINDS["attention"].make(10, None).eval()
    assert isinstance(attention, DegreeAttention)
    assert attention.polynomial().input_degree == KINDS["attention"].total_degree


def test_the_conclusion_counts_decided_pairs_by_degree() -> None:
    experiment = find_experiment("mixer-budget")
    assert experiment.claims is not None
    rows: list[Row] = [
        {"setting": "baseline-digits-logistic-regression", "seed": None, "test accuracy": 90.0}
    ]
    for kind, accuracy in (("mixer-square", 95.0), ("attention", 93.0), ("degree-2", 97.0)):
        rows += [
            {
                "setting": f"{kind}-{BUDGETS[-1]}",
                "seed": seed,
                "test accuracy": accuracy + 0.1 * (seed % 2),
                "total degree": KINDS[kind].total_degree,
            }
            for seed in range(5)
        ]
    said = [str(each) for each in statements_of(experiment.claims, rows)]
    assert any("1 of 2 go to the larger total degree" in each for each in said), said
