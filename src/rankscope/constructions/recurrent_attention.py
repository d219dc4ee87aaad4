"""Attention inside a recurrent network, with one that is built by hand: it reverses a sequence."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from rankscope.constructions.lookup_attention import attend
from rankscope.errors import ConstructionError

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Recurrence:
    r"""One layer of a recurrent network, the same weights at every step.

    .. math:: h_t = \sigma(W x_t + U h_{t-1} + b)

    Args:
        input_weight: W, state x input.
        state_weight: U, state x state.
        bias: b.
        start: h_0.
        activation: σ, entry by entry.
    """

    input_weight: Tensor
    state_weight: Tensor
    bias: Tensor
    start: Tensor
    activation: Activation = torch.tanh

    def step(self, inputs: Tensor, state: Tensor) -> Tensor:
        """The next state."""
        return self.activation(self.input_weight @ inputs + self.state_weight @ state + self.bias)

    def states(self, sequence: Tensor) -> Tensor:
        """All states after the start, one row for each row of the sequence.

        Raises:
            ConstructionError: if the sequence does not have the inputs of the layer.
        """
        width = self.input_weight.shape[1]
        if sequence.ndim != 2 or sequence.shape[1] != width:
            raise ConstructionError(
                f"Recurrence takes a sequence of vectors of size {width}, got shape "
                f"{tuple(sequence.shape)}."
            )
        found = [self.start]
        for inputs in sequence:
            found.append(self.step(inputs, found[-1]))
        return torch.stack(found[1:]) if len(found) > 1 else self.start.new_zeros(0, len(self.bias))


@dataclass(frozen=True, eq=False)
class Decoded:
    """What the decoder wrote, and where it looked.

    Args:
        outputs: one row for each step.
        weights: decoder steps x encoder positions.
    """

    outputs: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class RecurrentAttention:
    r"""An encoder and a decoder, which looks at all states of the encoder before every step.

    .. math:: c_t = \mathrm{attend}(Q s_{t-1}, H K^\top, H V^\top), \qquad
              s_t = \sigma(W c_t + U s_{t-1} + b), \qquad y_t = R s_t

    with the encoder's states as the rows of H, so the context c_t takes the place of the input.

    Args:
        encoder: reads the sequence.
        decoder: its inputs are contexts.
        query: Q, key size x decoder state.
        key: K, key size x encoder state.
        value: V, context x encoder state.
        readout: R, output x decoder state.

    Reference:
        Bahdanau, Cho & Bengio (2015), arXiv:1409.0473, with inner products as scores (Luong, Pham
        & Manning, 2015, arXiv:1508.04025); Levine et al. (2022), section 7.3.1.
    """

    encoder: Recurrence
    decoder: Recurrence
    query: Tensor
    key: Tensor
    value: Tensor
    readout: Tensor

    def decode(self, sequence: Tensor, *, steps: int) -> Decoded:
        """Read the sequence, then write for some steps.

        Raises:
            ConstructionError: if there is nothing to read or to write, or sizes do not fit.
        """
        if steps < 1 or not len(sequence):
            raise ConstructionError(
                f"RecurrentAttention needs 1 or more vectors and steps, got {len(sequence)} and "
                f"{steps}."
            )
        memory = self.encoder.states(sequence)
        keys, values = memory @ self.key.T, memory @ self.value.T
        state, outputs, weights = self.decoder.start, [], []
        for _ in range(steps):
            found = attend((self.query @ state)[None], keys, values)
            state = self.decoder.step(found.outputs[0], state)
            outputs.append(self.readout @ state)
            weights.append(found.weights[0])
        return Decoded(torch.stack(outputs), torch.stack(weights))


def reversing_network(length: int, size: int, *, sharpness: float) -> RecurrentAttention:
    r"""A ReLU network that writes a sequence of vectors backwards, for every sequence.

    The encoder's state is a clock (a basis vector that moves one place at each step) beside the
    positive and negative parts of the newest input; older inputs are forgotten. The decoder has a
    clock that runs backwards, asks for the encoder's state of that time, and writes what it gets.
    The query is `sharpness` = β times a basis vector, so all weights but one are below exp(-β).

    Raises:
        ConstructionError: if a size or the sharpness is not positive.
    """
    if length < 1 or size < 1 or sharpness <= 0:
        raise ConstructionError(
            "reversing_network needs a positive length, size and sharpness, got "
            f"{length}, {size} and {sharpness:g}."
        )
    clock, content = torch.eye(length, dtype=torch.float64), torch.eye(size, dtype=torch.float64)
    parts, kept = torch.cat([content, -content]), torch.eye(2 * size, dtype=torch.float64)
    read_clock, read_parts = pad(clock, (0, 2 * size)), pad(kept, (length, 0))
    return RecurrentAttention(
        encoder=_clocked(clock.roll(1, dims=0), parts),
        decoder=_clocked(clock.roll(-1, dims=0), kept),
        query=sharpness * read_clock,
        key=read_clock,
        value=read_parts,
        readout=parts.T @ read_parts,
    )


def _clocked(shift: Tensor, write: Tensor) -> Recurrence:
    """A clock that `shift` moves, beside what `write` makes of the newest input."""
    length, room = len(shift), len(write)
    start = torch.zeros(length + room, dtype=torch.float64)
    start[length - 1] = 1.0
    return Recurrence(
        input_weight=pad(write, (0, 0, length, 0)),
        state_weight=pad(shift, (0, room, 0, room)),
        bias=torch.zeros_like(start),
        start=start,
        activation=torch.relu,
    )


def reversal_error_bound(length: int, *, largest: float, sharpness: float) -> float:
    r"""How far the reversing network can be from the sequence backwards, in each entry.

    .. math:: 2 \max\lvert x \rvert\, \frac{(n-1) e^{-\beta}}{1 + (n-1) e^{-\beta}}

    The weights that are not on the right position add up to that fraction, and each moves an
    entry by at most the difference of two entries.

    Example:
        >>> reversal_error_bound(1, largest=3.0, sharpness=5.0)
        0.0
    """
    others = (length - 1) * math.exp(-sharpness)
    return 2 * largest * others / (1 + others)
