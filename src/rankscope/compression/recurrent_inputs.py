"""What enters each layer and direction of a recurrent module: its inputs and its states.

The module itself tells only what the last layer gives, so that its layers are run one by one.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence


class RecurrentLayers:
    """An LSTM or a GRU as a row of modules with one layer each, which share its weights."""

    def __init__(self, module: nn.LSTM | nn.GRU) -> None:
        self._batch_first = module.batch_first
        self._directions = 2 if module.bidirectional else 1
        self._layers = [_layer(module, number) for number in range(module.num_layers)]

    def inputs(self, sequences: object, start: object) -> Iterator[tuple[str, Tensor]]:
        """Vectors (count, size) that each `weight_ih` and `weight_hh` is multiplied with.

        Args:
            sequences: what the module is called with: (steps, batch, size), or with the batch
                first, or without one, or packed.
            start: its states at the start, zeros if None; of an LSTM with the cells' beside them.
        """
        for number, layer in enumerate(self._layers):
            own_start = _of_layer(start, number, self._directions)
            outputs, _ = layer(sequences, own_start)
            entering = _as_list(sequences, batch_first=self._batch_first)
            for direction, suffix in enumerate(("", "_reverse")[: self._directions]):
                name = f"_l{number}{suffix}"
                yield f"weight_ih{name}", torch.cat(entering)
                size = layer.proj_size or layer.hidden_size
                states = [
                    sequence[:, direction * size : (direction + 1) * size]
                    for sequence in _as_list(outputs, batch_first=self._batch_first)
                ]
                yield f"weight_hh{name}", _states_before(states, own_start, direction)
            sequences = outputs


def _states_before(states: list[Tensor], start: object, direction: int) -> Tensor:
    """The state that enters each step: the start, and all but the last that leaves one."""
    first = start[0] if isinstance(start, tuple) else start
    initial = (
        first[direction].reshape(-1, states[0].shape[-1])
        if isinstance(first, Tensor)
        else states[0].new_zeros(len(states), states[0].shape[-1])
    )
    inner = [state[1:] if direction else state[:-1] for state in states]
    return torch.cat([initial, *inner])


def _layer(module: nn.LSTM | nn.GRU, number: int) -> nn.LSTM | nn.GRU:
    """A module of one layer with the weights of one layer of another."""
    suffixes = ("", "_reverse") if module.bidirectional else ("",)
    weights = {
        name.replace(f"_l{number}", "_l0"): parameter.detach()
        for name, parameter in module.named_parameters()
        if any(name.endswith(f"_l{number}{suffix}") for suffix in suffixes)
    }
    first = weights["weight_ih_l0"]
    options: dict[str, int] = {"proj_size": module.proj_size} if module.proj_size else {}
    layer = type(module)(
        first.shape[1],
        module.hidden_size,
        bias=module.bias,
        batch_first=module.batch_first,
        bidirectional=module.bidirectional,
        device="meta",
        dtype=first.dtype,
        **options,
    )
    layer.load_state_dict(weights, assign=True)
    return layer.eval()


def _of_layer(start: object, number: int, directions: int) -> object:
    if isinstance(start, tuple):
        return tuple(_of_layer(part, number, directions) for part in start)
    if isinstance(start, Tensor):
        return start[number * directions : (number + 1) * directions]
    return None


def _as_list(sequences: object, *, batch_first: bool) -> list[Tensor]:
    """Each sequence (steps, size) of a batch, without its padding."""
    if isinstance(sequences, PackedSequence):
        padded, lengths = pad_packed_sequence(sequences, batch_first=True)
        return [row[:length] for row, length in zip(padded, lengths.tolist(), strict=True)]
    assert isinstance(sequences, Tensor)
    if sequences.ndim == 2:
        return [sequences]
    return list(sequences if batch_first else sequences.movedim(1, 0))
