"""Language models cut by published rules and by ours, at equal parameters."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from rankscope.lab.experiments import Decoder, RunContext, Verdict, block_sites
from rankscope.lab.experiments.decoder_compression import (
    RULES,
    by_losses,
    by_rule,
    excesses,
    uniform_count,
)
from rankscope.networks import Llama, LlamaSizes


def decoder() -> Decoder:
    torch.manual_seed(0)
    model = Llama(LlamaSizes(16, 24, 2, 4, 2, vocabulary=20, num_positions=12)).eval()
    calibration, test, other = torch.randint(20, (3, 6, 12))
    return Decoder(model, ("tokens",), calibration, test, other, lambda: test, 1e-3, 2)


def test_all_rules_and_ours_keep_equally_many_parameters(tmp_path: Path) -> None:
    opened = decoder()
    sites = block_sites(opened)
    dense = sum(site.num_parameters for site in sites)
    total = sum(parameter.numel() for parameter in opened.model.parameters())
    kept = total - dense + uniform_count(sites, 0.7)
    models = [by_rule(rule, opened, 0.7) for rule in RULES]
    counts = [sum(part.numel() for part in model.parameters()) for model in models]
    assert counts == [kept] * len(RULES)
    ours = by_losses(opened, 0.7, RunContext(tmp_path / "cell", None, 1.0))
    assert sum(part.numel() for part in ours.parameters()) <= kept


@pytest.mark.parametrize(("rule", "power"), [("svd", 0), ("svd-llm", 1)])
def test_a_rule_is_the_best_cut_in_its_own_norm(rule: str, power: int) -> None:
    # Eckart and Young: of W L, the error of the cut is that of the singular values left out.
    opened = decoder()
    site = next(site for site in block_sites(opened) if site.name.endswith("gate"))
    seen: list[Tensor] = []
    handle = opened.model.get_submodule(site.module_name).register_forward_pre_hook(
        lambda _, given: seen.append(given[0].flatten(0, -2).double())
    )
    with torch.no_grad():
        opened.model(opened.calibration)
    handle.remove()
    inputs = torch.cat(seen)
    root = inputs if power else torch.eye(inputs.shape[1], dtype=torch.float64)
    cut = by_rule(rule, opened, 0.7).get_submodule(site.module_name).weight.detach().double()  # type: ignore[operator]
    weight = site.weight[0].double()
    rank = int(torch.linalg.matrix_rank(cut, rtol=1e-5))
    values = torch.linalg.svdvals(root @ weight.T)
    error = torch.linalg.matrix_norm(root @ (weight - cut).T)
    torch.testing.assert_close(error, values[rank:].norm(), rtol=1e-3, atol=1e-6)


def test_the_loss_is_the_mean_over_all_tokens_but_the_first() -> None:
    opened = decoder()
    with torch.no_grad():
        logarithms = opened.model(opened.test).double().log_softmax(-1)
    terms = [
        -logarithms[row, place - 1, opened.test[row, place]]
        for row in range(6)
        for place in range(1, 12)
    ]
    assert opened.loss(opened.model, opened.test) == pytest.approx(float(sum(terms)) / 66, rel=1e-6)


def test_excesses_are_over_the_dense_model_and_missing_cells_are_named() -> None:
    def row(entry: str, loss: float) -> dict[str, object]:
        return {"entry": entry, "loss": loss, "loss, other text": loss + 1}

    rows = [row("dense", 3.0), row("0.8-svd-llm", 5.0), row("0.8-ours", 4.0)]
    rows += [row("dense-repaired", 2.0), row("0.9-ours-repaired", 3.0), row("0.9-svd-llm", 5.0)]
    said = list(excesses(rows))  # type: ignore[arg-type]
    assert len(said) == 12
    computed = [one for one in said if one.verdict is Verdict.FACT]
    assert [one.subject for one in computed] == [
        f"ours{how} of the blocks{where}"
        for where in ("", ", other text")
        for how in (", repaired at 0.9", " at 0.8")
    ]
    for one in computed[:2]:
        assert "excess log-perplexity 1.000, 0.50 of that" in one.detail
    assert "at most 0.75 was asked for" in computed[1].detail
