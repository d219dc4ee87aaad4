"""Which tensors between the cores are laid out with channels side by side."""

import torch

from rankscope.layers.formats.arrangement import LEAST_NUMBERS, channels_last


def test_large_states_of_two_positions_are_arranged_and_equal() -> None:
    state = torch.randn(4, 4, 64, LEAST_NUMBERS // 1024)
    arranged = channels_last(state)
    assert arranged.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(arranged, state)


def test_small_states_and_those_of_one_position_stay_as_they_are() -> None:
    for state in (torch.randn(2, 4, 8, 8), torch.randn(4, 4, LEAST_NUMBERS)):
        assert channels_last(state) is state
