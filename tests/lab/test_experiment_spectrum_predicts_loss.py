"""Which matrices can lose rank: spectra beside measured divergences."""

from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest
import torch

from rankscope.lab.experiments import (
    Decoder,
    DecoderWorkload,
    Row,
    RunContext,
    SpectrumEntry,
    Verdict,
    block_sites,
)
from rankscope.lab.experiments.spectrum_predicts_loss import (
    LOST,
    OTHER_BLOCKS,
    PREDICTORS,
    RULES,
    SPECTRUM_PREDICTS_LOSS,
    correlations,
    lost_of,
)
from rankscope.networks import Llama, LlamaSizes


@dataclass(frozen=True)
class Drawn(DecoderWorkload):
    """A small random model on random tokens."""

    def open(self, data: Path | None) -> Decoder:
        assert data is None
        torch.manual_seed(0)
        model = Llama(LlamaSizes(16, 24, 3, 4, 2, vocabulary=20, num_positions=12)).eval()
        calibration, test, other = torch.randint(20, (3, 6, 12))
        return Decoder(model, ("tokens",), calibration, test, other, lambda: test, 1e-3, 2)


@pytest.mark.slow
def test_a_row_has_a_number_for_every_matrix_and_statements_follow(tmp_path: Path) -> None:
    row = SpectrumEntry("drawn", Drawn()).run(RunContext(tmp_path, None, 1.0))
    sites = block_sites(Drawn().open(None))
    assert row["matrices"] == len(sites)
    for name in (LOST, "block", *RULES):
        values = row[f"{name}, each"]
        assert isinstance(values, list)
        assert len(values) == len(sites)
    claims = SPECTRUM_PREDICTS_LOSS.claims
    assert claims is not None
    assert claims.facts is not None
    *statements, answer = claims.facts([{"setting": "drawn", **row}])
    assert len(statements) == len(PREDICTORS)
    assert answer.subject == claims.answer


def test_what_is_lost_is_the_error_of_the_best_cut() -> None:
    site = block_sites(Drawn().open(None))[0]
    matrix = site.weight.flatten(2)[0].double()
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    cut = left[:, :3] * values[:3] @ right[:3]
    error = float((matrix - cut).square().sum() / matrix.square().sum())
    assert lost_of(site, 3) == pytest.approx(error, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
def test_a_spectrum_that_orders_the_losses_is_ahead_of_the_kind_and_one_that_does_not_is_behind(
    sign: int,
) -> None:
    generator = numpy.random.default_rng(0)
    losses = generator.random(60)
    noise = generator.random(60)
    table = {
        "block": numpy.repeat(numpy.arange(12.0), 5),
        LOST: losses,
        "parameters": noise,
        OTHER_BLOCKS: noise if sign > 0 else losses,
        **dict.fromkeys(PREDICTORS, losses if sign > 0 else noise),
    }
    found = correlations(table)
    row: Row = {"setting": "planted"}
    for name, (value, low, high) in found.items():
        assert low <= value <= high
        row |= {name: value, f"{name}, interval": [low, high]}
    claims = SPECTRUM_PREDICTS_LOSS.claims
    assert claims is not None
    assert claims.facts is not None
    wanted = Verdict.DECIDED if sign > 0 else Verdict.BELOW
    *statements, answer = claims.facts([row])
    assert {one.verdict for one in statements} == {wanted}
    told = "3 of 3; " if sign > 0 else "0 of 3; "
    assert answer.detail.startswith(told)
