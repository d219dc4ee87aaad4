import pytest
import torch
from torch import Tensor

from rankscope.layers.recurrent_cells import State, gru_step, lstm_step, walk


def test_an_lstm_step_is_its_formula_entry_by_entry(generator: torch.Generator) -> None:
    gates, hidden, cell = (
        torch.randn(3, n, generator=generator, dtype=torch.float64) for n in (8, 2, 2)
    )
    matrix = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    after = lstm_step(gates, (hidden, cell), lambda state: state @ matrix.mT, None)
    for sample in range(3):
        for unit in range(2):
            i, f, g, o = (
                gates[sample, unit + 2 * place] + matrix[unit + 2 * place] @ hidden[sample]
                for place in range(4)
            )
            kept = torch.sigmoid(f) * cell[sample, unit] + torch.sigmoid(i) * torch.tanh(g)
            torch.testing.assert_close(after[1][sample, unit], kept)
            torch.testing.assert_close(after[0][sample, unit], torch.sigmoid(o) * torch.tanh(kept))


def test_a_projection_acts_on_the_hidden_state_only(generator: torch.Generator) -> None:
    gates, hidden, cell = (torch.randn(3, n, generator=generator) for n in (8, 1, 2))
    matrix = torch.randn(8, 1, generator=generator)
    plain = lstm_step(gates, (hidden, cell), lambda state: state @ matrix.mT, None)
    small = lstm_step(
        gates, (hidden, cell), lambda state: state @ matrix.mT, lambda state: state.sum(1)[:, None]
    )
    assert torch.equal(small[0], plain[0].sum(1)[:, None])
    assert torch.equal(small[1], plain[1])


def test_the_reset_gate_acts_after_the_recurrent_matrix_and_its_bias() -> None:
    # All gates at zero but the last: reset and update are 1/2, and n = tanh(1 + 3/2).
    from_input = torch.tensor([[0.0, 0.0, 1.0]])
    hidden = torch.tensor([[4.0]])
    (after,) = gru_step(from_input, (hidden,), lambda state: torch.tensor([[0.0, 0.0, 3.0]]))
    torch.testing.assert_close(after, (torch.tanh(torch.tensor([[2.5]])) + 4.0) / 2)


@pytest.mark.parametrize("is_reverse", [False, True])
def test_walks_stop_where_a_sample_ends(is_reverse: bool) -> None:
    def step(inputs: Tensor, state: State) -> State:
        return (10 * state[0] + inputs,)

    inputs = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])[..., None]
    outputs, (last,) = walk(
        step,
        inputs,
        (torch.zeros(2, 1),),
        is_reverse=is_reverse,
        lengths=torch.tensor([3, 2]),
    )
    if is_reverse:
        assert outputs[..., 0].tolist() == [[321.0, 21.0], [32.0, 2.0], [3.0, 0.0]]
        assert last.tolist() == [[321.0], [21.0]]
    else:
        assert outputs[..., 0].tolist() == [[1.0, 1.0], [12.0, 12.0], [123.0, 12.0]]
        assert last.tolist() == [[123.0], [12.0]]
