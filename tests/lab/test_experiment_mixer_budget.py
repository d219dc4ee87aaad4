"""Mixers against attention and product layers."""

from pathlib import Path

import pytest
import torch

from rankscope.lab import find_experiment
from rankscope.lab.experiments import Row, RunContext, mixer_budget, statements_of
from rankscope.lab.experiments.mixer_budget import (
    BUDGETS,
    KINDS,
    NUM_TOKENS,
    TOKEN_SIZE,
    MnistEntry,
    widest,
)
from rankscope.networks import DataSet, DegreeAttention, MlpMixer, TensorData
from rankscope.progress import ignore


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


def test_images_of_mnist_are_averaged_to_the_tokens_of_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = torch.rand(4, 1, 28, 28)
    labels = torch.arange(4)
    data = DataSet("mnist", TensorData(images, labels), TensorData(images[:2], labels[:2]), 10)
    monkeypatch.setattr(mixer_budget, "load_data_set", lambda *_: data)
    context = RunContext(tmp_path, None, 60.0, ignore)
    train, test = MnistEntry("mixer-gelu", BUDGETS[0]).tokens(context)
    assert (len(train), len(test)) == (4, 2)
    rim = torch.zeros(4, 32, 32)
    rim[:, 2:30, 2:30] = images[:, 0]
    for token in range(NUM_TOKENS):
        for pixel in range(TOKEN_SIZE):
            row, column = 2 * (token // 4) + pixel // 2, 2 * (token % 4) + pixel % 2
            square = rim[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            assert torch.allclose(train.inputs[:, token, pixel], square.mean(dim=(1, 2)))


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
    facts = {one.subject: one.detail for one in statements_of(experiment.claims, rows)}
    assert facts["Decided pairs of different total degrees"].startswith("1 of 2 go to the larger")
    # At the other budget there are no rows.
    assert facts["Better at every budget"] == "none"
    everywhere = [
        *rows,
        *(
            {**row, "setting": str(row["setting"]).replace(str(BUDGETS[-1]), str(BUDGETS[0]))}
            for row in rows[1:]
            if "mixer" not in str(row["setting"])
        ),
        *(
            {**row, "setting": f"mixer-square-{BUDGETS[0]}", "test accuracy": 90.5}
            for row in rows[1:6]
        ),
    ]
    facts = {one.subject: one.detail for one in statements_of(experiment.claims, everywhere)}
    # Squares beat attention at one budget only.
    assert facts["Better at every budget"] == "layers of degree 2 than mixer with squares"
