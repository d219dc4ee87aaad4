"""What enters a recurrent layer, against its equations written out step by step."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from rankscope.compression import RecurrentLayers


def collected(module: nn.LSTM | nn.GRU, sequences: object, start: object) -> dict[str, Tensor]:
    with torch.no_grad():
        return dict(RecurrentLayers(module).inputs(sequences, start))


def moments(vectors: Tensor) -> Tensor:
    return vectors.mT @ vectors


def step_by_step(
    module: nn.LSTM | nn.GRU, sequence: Tensor, start: Tensor | None, cells: Tensor | None
) -> dict[str, list[Tensor]]:
    """All vectors that enter, one sample, cell by cell; sequence is (steps, size)."""
    found: dict[str, list[Tensor]] = {}
    directions = ("", "_reverse") if module.bidirectional else ("",)
    is_lstm = isinstance(module, nn.LSTM)
    kind = nn.LSTMCell if is_lstm else nn.GRUCell
    for layer in range(module.num_layers):
        outputs = []
        for number, suffix in enumerate(directions):
            name = f"l{layer}{suffix}"
            cell = kind(sequence.shape[1], module.hidden_size, bias=module.bias)
            parts = {
                part: getattr(module, f"{part}_{name}") for part in dict(cell.named_parameters())
            }
            cell.load_state_dict(parts)
            at = layer * len(directions) + number
            state = torch.zeros(module.hidden_size) if start is None else start[at]
            memory = torch.zeros(module.hidden_size) if cells is None else cells[at]
            steps = list(sequence.flip(0) if suffix else sequence)
            given = []
            for step in steps:
                found.setdefault(f"weight_ih_{name}", []).append(step)
                found.setdefault(f"weight_hh_{name}", []).append(state)
                if is_lstm:
                    state, memory = cell(step[None], (state[None], memory[None]))
                    state, memory = state[0], memory[0]
                else:
                    state = cell(step[None], state[None])[0]
                given.append(state)
            stacked = torch.stack(given)
            outputs.append(stacked.flip(0) if suffix else stacked)
        sequence = torch.cat(outputs, dim=1)
    return found


@settings(deadline=None, max_examples=25)
@given(
    is_lstm=st.booleans(),
    bidirectional=st.booleans(),
    batch_first=st.booleans(),
    bias=st.booleans(),
    with_start=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_inputs_and_states_are_those_of_the_equations(
    is_lstm: bool, bidirectional: bool, batch_first: bool, bias: bool, with_start: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    module = (nn.LSTM if is_lstm else nn.GRU)(
        3, 2, num_layers=2, bias=bias, batch_first=batch_first, bidirectional=bidirectional
    )
    sequences = torch.randn(4, 5, 3)  # (batch, steps, size)
    rows = 2 * (2 if bidirectional else 1)
    start = torch.randn(rows, 4, 2) if with_start else None
    cells = torch.randn(rows, 4, 2) if with_start and is_lstm else None
    given_start = (start, cells) if cells is not None else start
    inputs = sequences if batch_first else sequences.movedim(0, 1)
    found = collected(module, inputs, given_start)

    wanted: dict[str, list[Tensor]] = {}
    with torch.no_grad():
        for sample in range(4):
            own_start = None if start is None else start[:, sample]
            own_cells = None if cells is None else cells[:, sample]
            one = step_by_step(module, sequences[sample], own_start, own_cells)
            for name, vectors in one.items():
                wanted.setdefault(name, []).extend(vectors)
    assert set(found) == set(wanted)
    for name, vectors in wanted.items():
        assert len(found[name]) == len(vectors)
        torch.testing.assert_close(moments(found[name]), moments(torch.stack(vectors)))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_count_no_padding(bidirectional: bool) -> None:
    torch.manual_seed(0)
    module = nn.GRU(3, 2, bidirectional=bidirectional)
    long, short = torch.randn(5, 3), torch.randn(2, 3)
    packed = collected(module, pack_sequence([long, short]), None)
    apart = [collected(module, sequence, None) for sequence in (long, short)]
    for name, vectors in packed.items():
        assert len(vectors) == 7
        both = torch.cat([one[name] for one in apart])
        torch.testing.assert_close(moments(vectors), moments(both))


def test_a_projected_lstm_gives_its_projected_states() -> None:
    module = nn.LSTM(3, 5, proj_size=2).double()  # in float32 torch warns
    found = collected(module, torch.randn(4, 3).double(), None)
    assert found["weight_hh_l0"].shape == (4, 2)
    assert set(found) == {"weight_ih_l0", "weight_hh_l0"}
