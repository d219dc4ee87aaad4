"""One step of a recurrent layer, and the walk over time; conventions are PyTorch's."""

from collections.abc import Callable

import torch
from torch import Tensor

State = tuple[Tensor, ...]
Apply = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, State], State]


def lstm_step(from_input: Tensor, state: State, recurrent: Apply, project: Apply | None) -> State:
    r"""The next hidden state and cell.

    .. math:: c' = \sigma(f) \odot c + \sigma(i) \odot \tanh(g), \qquad
              h' = W_{hr} (\sigma(o) \odot \tanh(c'))

    with the gates i, f, g, o in this order, each a sum of what `from_input` holds and of what
    `recurrent` makes of h, biases included. Without `project`, there is no W_hr.
    """
    hidden, cell = state
    entered, kept, fresh, shown = (from_input + recurrent(hidden)).chunk(4, -1)
    cell = torch.sigmoid(kept) * cell + torch.sigmoid(entered) * torch.tanh(fresh)
    hidden = torch.sigmoid(shown) * torch.tanh(cell)
    return (hidden if project is None else project(hidden)), cell


def gru_step(from_input: Tensor, state: State, recurrent: Apply) -> State:
    r"""The next hidden state.

    .. math:: n = \tanh(x_n + \sigma(x_r + h_r) \odot h_n), \qquad
              h' = (1 - z) \odot n + z \odot h, \quad z = \sigma(x_z + h_z)

    with the gates r, z, n in this order, x in `from_input` and h from `recurrent`. The reset gate
    acts on what `recurrent` returns, its bias included, not on the state before it.
    """
    (hidden,) = state
    reset, update, fresh = from_input.chunk(3, -1)
    reset_again, update_again, fresh_again = recurrent(hidden).chunk(3, -1)
    fresh = torch.tanh(fresh + torch.sigmoid(reset + reset_again) * fresh_again)
    share = torch.sigmoid(update + update_again)
    return (fresh + share * (hidden - fresh),)


def walk(
    step: Step, inputs: Tensor, state: State, *, is_reverse: bool, lengths: Tensor | None
) -> tuple[Tensor, State]:
    """Carry a state over time; the outputs are its first part after each step.

    Args:
        step: from an input and a state to the next state.
        inputs: (time, batch, ...).
        state: before the first step.
        is_reverse: from the last input to the first.
        lengths: of each sample, on the device of the inputs; beyond it a state stays as it is.
            None if all are of full length.
    """
    outputs = []
    times = range(len(inputs))
    for time in reversed(times) if is_reverse else times:
        after = step(inputs[time], state)
        if lengths is not None:
            goes_on = (time < lengths)[:, None]
            pairs = zip(after, state, strict=True)
            after = tuple(torch.where(goes_on, new, old) for new, old in pairs)
        state = after
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if is_reverse else outputs), state
