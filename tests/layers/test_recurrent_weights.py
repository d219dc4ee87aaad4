import pytest
import torch
from torch import nn

from rankscope.layers.recurrent import (
    RecurrentSettings,
    dense_state,
    flat_weights,
    split_weights,
)

ALL: list[nn.RNNBase] = [
    nn.LSTM(3, 4),
    nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2),
    nn.LSTM(3, 4, bias=False, proj_size=1),
    nn.GRU(3, 4, num_layers=3, bidirectional=True, batch_first=True, dropout=0.5),
]


@pytest.mark.parametrize("dense", ALL, ids=str)
def test_names_are_those_of_pytorch_in_its_order(dense: nn.RNNBase) -> None:
    wanted = [name for name, _ in dense.named_parameters() if name.startswith("weight")]
    assert list(RecurrentSettings.of(dense).weight_names) == wanted


@pytest.mark.parametrize("dense", ALL, ids=str)
def test_the_state_of_what_was_split_is_the_same(dense: nn.RNNBase) -> None:
    wanted, got = dense.state_dict(), dense_state(split_weights(dense))
    assert wanted.keys() == got.keys()
    assert all(torch.equal(wanted[name], got[name]) for name in wanted)
    shared = {tensor.data_ptr() for tensor in wanted.values()}
    assert not shared & {tensor.data_ptr() for tensor in got.values()}


@pytest.mark.parametrize("dense", ALL, ids=str)
def test_flat_weights_are_in_the_order_of_the_fused_kernel(dense: nn.RNNBase) -> None:
    linears = split_weights(dense)
    weights = {name: linear.weight for name, linear in linears.items()}
    biases = {name: linear.bias for name, linear in linears.items()}
    for got, wanted in zip(flat_weights(weights, biases), dense.parameters(), strict=True):
        assert torch.equal(got, wanted)


def test_sizes_follow_from_the_settings() -> None:
    settings = RecurrentSettings.of(ALL[1])
    assert (settings.num_directions, settings.out_size) == (2, 2)
    assert (RecurrentSettings(3, 4).num_directions, RecurrentSettings(3, 4).out_size) == (1, 4)
    runs = [("l0", False), ("l0_reverse", True), ("l1", False), ("l1_reverse", True)]
    assert list(settings.runs()) == runs
