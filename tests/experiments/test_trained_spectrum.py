import math

import pytest
import torch
from torch import Tensor

from rankscope.errors import ExperimentError
from rankscope.experiments.sequence_models import SpectrumSettings, evenly, spectrum_row

TOKENS = torch.randint(9, (12, 4), generator=torch.Generator().manual_seed(0))
ONE = SpectrumSettings(num_inputs=12, num_outputs=1, epsilon=0.01)


def halves(tokens: Tensor) -> tuple[Tensor, Tensor]:
    left, right = torch.split(tokens.double(), 2, dim=1)
    return left.sum(1), right.prod(1) + 1


def both(tokens: Tensor) -> Tensor:
    left, right = halves(tokens)
    return left + right


def test_a_function_of_one_half_is_a_product() -> None:
    row = spectrum_row(lambda tokens: halves(tokens)[0][:, None], TOKENS, ONE)
    assert row["entanglement entropy"] == pytest.approx(0, abs=1e-9)
    assert row["epsilon rank"] == 1


def test_a_sum_of_both_halves_has_rank_two_and_two_singular_values() -> None:
    row = spectrum_row(lambda tokens: both(tokens)[:, None], TOKENS, ONE)
    spectrum = row["spectrum"]
    assert isinstance(spectrum, list)
    assert row["epsilon rank"] == 2
    assert [value > 1e-9 for value in spectrum[:3]] == [True, True, False]
    shares = [value**2 / sum(other**2 for other in spectrum[:2]) for value in spectrum[:2]]
    wanted = -sum(share * math.log(share) for share in shares)
    assert row["entanglement entropy"] == pytest.approx(wanted)


def test_neither_a_constant_nor_the_scale_matters() -> None:
    def outputs(tokens: Tensor) -> Tensor:
        return both(tokens)[:, None].sin()

    plain = spectrum_row(outputs, TOKENS, ONE)
    moved = spectrum_row(lambda tokens: 7 * outputs(tokens) + 100, TOKENS, ONE)
    assert moved["entanglement entropy"] == pytest.approx(plain["entanglement entropy"])
    assert moved["epsilon rank"] == plain["epsilon rank"]


def test_several_outputs_are_averaged() -> None:
    row = spectrum_row(
        lambda tokens: torch.stack([halves(tokens)[0], both(tokens)], 1),
        TOKENS,
        SpectrumSettings(num_inputs=12, num_outputs=2, epsilon=0.01),
    )
    assert row["epsilon rank"] == 1.5


def test_a_constant_output_is_refused() -> None:
    with pytest.raises(ExperimentError, match="output 0 is 3 for all 12 inputs"):
        spectrum_row(lambda tokens: torch.full((len(tokens), 1), 3.0), TOKENS, ONE)


def test_windows_of_a_text_that_is_too_short_are_refused() -> None:
    with pytest.raises(ExperimentError, match="4 windows of 3 need at least 6 symbols, got 5"):
        evenly(torch.arange(5), 4, 3)
