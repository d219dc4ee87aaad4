"""The recurrent language model."""

import pytest
import torch

from rankscope.networks import RecurrentLanguageModel


@pytest.mark.parametrize("is_tied", [False, True])
def test_parameters_count_the_embedding_once_if_it_is_tied(is_tied: bool) -> None:
    model = RecurrentLanguageModel(30, width=6, num_layers=3, is_tied=is_tied)
    recurrent = 3 * 4 * (6 * 6 + 6 * 6 + 2 * 6)
    expected = 30 * 6 + recurrent + (0 if is_tied else 30 * 6) + 30
    assert sum(weight.numel() for weight in model.parameters()) == expected
    assert (model.decoder.weight is model.encoder.weight) is is_tied


def test_no_word_sees_what_comes_after_it() -> None:
    model = RecurrentLanguageModel(30, width=6)
    words = torch.randint(30, (2, 7))
    changed = words.clone()
    changed[:, 4] = (words[:, 4] + 1) % 30
    before, after = model(words), model(changed)
    assert before.shape == (2, 7, 30)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().amin(dim=1).max() > 0
