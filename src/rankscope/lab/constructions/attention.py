"""Attention from its definition: as a lookup, with several heads, in a recurrent network."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from rankscope.diagrams.cost import cost
from rankscope.diagrams.families.catalogue import build_family
from rankscope.errors import ConstructionError
from rankscope.lab.constructions.blocks import softmax

# Attention as a lookup table that can be differentiated.


def lookup(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    r"""Values added up, each as often as its key matches: linear in each of the three.

    .. math:: \mathrm{lookup}(q) = \sum_i \langle q, k_i \rangle v_i

    With basis vectors as keys, a basis vector as query gives exactly one value.

    Example:
        >>> values = torch.tensor([[1.0, 0.0], [5.0, 2.0], [7.0, 7.0]])
        >>> lookup(torch.tensor([0.0, 1.0, 0.0]), torch.eye(3), values).tolist()
        [5.0, 2.0]

    Raises:
        ConstructionError: if the shapes do not fit.

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", Example 2.3.
    """
    _require_table("lookup", query[None] if query.ndim == 1 else query, keys, values)
    return (query @ keys.T) @ values


@dataclass(frozen=True, eq=False)
class Attended:
    """Attention with what is on its way.

    Args:
        scores: inner products of queries (rows) and keys (columns).
        scaled: the same, divided by the scale.
        weights: their softmax along the keys.
        outputs: values, mixed by the weights.
    """

    scores: Tensor
    scaled: Tensor
    weights: Tensor
    outputs: Tensor


def attend(queries: Tensor, keys: Tensor, values: Tensor, *, scale: float = 1.0) -> Attended:
    r"""Softmax of scores, times values.

    .. math:: \mathrm{softmax}\!\left(\frac{Q K^\top}{\mathrm{scale}}\right) V

    Args:
        queries: queries x features.
        keys: keys x features.
        values: keys x value features.
        scale: 1 in the lecture, the root of the number of features in transformers.

    Raises:
        ConstructionError: if the shapes do not fit.

    Reference:
        Diehl (2023), section 2.2, with the transpose where it belongs; Vaswani et al. (2017),
        equation (1), arXiv:1706.03762.
    """
    _require_table("attend", queries, keys, values)
    if scale <= 0:
        raise ConstructionError(f"attend divides by a positive scale, got {scale:g}.")
    scores = queries @ keys.T
    scaled = scores / scale
    weights = softmax(scaled)
    return Attended(scores, scaled, weights, weights @ values)


def transformer_scale(num_features: int) -> float:
    """The root of the number of features.

    Example:
        >>> transformer_scale(64)
        8.0
    """
    return math.sqrt(num_features)


def worked_example() -> Attended:
    """The query of "Thinking" at the keys of "Thinking" and "Machines", with 64 features.

    The scores are 112 and 96, so 14 and 12 after the division by 8, and the weights are 0.88 and
    0.12. Only the scores are given in the source; these are the flattest vectors that have them,
    and basis vectors as values, so that the output shows the weights.

    Example:
        >>> example = worked_example()
        >>> example.scores.tolist(), example.scaled.tolist()
        ([[112.0, 96.0]], [[14.0, 12.0]])
        >>> [f"{weight:.2f}" for weight in example.weights[0].tolist()]
        ['0.88', '0.12']

    Reference:
        Levine et al. (2022), Tensors for deep learning theory, section 7.3.1.
    """
    ones = torch.ones(1, 64, dtype=torch.float64)
    keys = torch.cat([ones * 112 / 64, ones * 96 / 64])
    return attend(ones, keys, torch.eye(2, dtype=torch.float64), scale=transformer_scale(64))


def _require_table(who: str, queries: Tensor, keys: Tensor, values: Tensor) -> None:
    shapes = [tuple(tensor.shape) for tensor in (queries, keys, values)]
    if any(len(shape) != 2 for shape in shapes):
        raise ConstructionError(
            f"{who} takes matrices of queries, keys and values, got shapes {shapes}."
        )
    if shapes[0][1] != shapes[1][1] or shapes[1][0] != shapes[2][0]:
        raise ConstructionError(
            f"{who}: queries and keys must have the same features, keys and values the same "
            f"count, got shapes {shapes}."
        )


# Multi-head attention from its definition.


@dataclass(frozen=True, eq=False)
class MultiHeadAttention:
    """Several attentions side by side, and a projection of all their outputs.

    Args:
        query: heads x query features x key size.
        key: heads x key features x key size.
        value: heads x value features x value size.
        projection: output features x (heads times value size).
        bias: of the projection.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    projection: Tensor
    bias: Tensor

    @classmethod
    def of(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """The weights of torch's module, cut into heads.

        Raises:
            ConstructionError: if it has what the definition has not: biases of queries, keys and
                values that are not zero, an added key, or no bias of the projection.
        """
        biased = module.in_proj_bias is not None and bool(module.in_proj_bias.any())
        if biased or module.bias_k is not None or module.add_zero_attn:
            raise ConstructionError(
                "MultiHeadAttention.of: the definition has no bias of queries, keys and values, "
                f"no added key and no zero key, got {module}; set in_proj_bias to zero."
            )
        if module.out_proj.bias is None:
            raise ConstructionError(
                f"MultiHeadAttention.of: the projection of {module} has no bias; build it with "
                "bias=True."
            )
        if module.in_proj_weight is None:
            weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        else:
            weights = module.in_proj_weight.chunk(3)
        query, key, value = (
            weight.detach().reshape(module.num_heads, -1, weight.shape[1]).transpose(1, 2)
            for weight in weights
        )
        projection = module.out_proj
        return cls(query, key, value, projection.weight.detach(), projection.bias.detach())

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend with each head, put the outputs side by side, project.

        Raises:
            ConstructionError: if the shapes do not fit.

        Reference:
            Diehl (2023), section 2.2; Vaswani et al. (2017), section 3.2.2, arXiv:1706.03762.
        """
        scale = transformer_scale(self.key.shape[-1])
        outputs = [
            attend(queries @ query, keys @ key, values @ value, scale=scale).outputs
            for query, key, value in zip(self.query, self.key, self.value, strict=True)
        ]
        return torch.cat(outputs, dim=1) @ self.projection.T + self.bias


def attention_operations(length: int, *, features: int, heads: int) -> int:
    """Operations of self-attention, counted by its diagram; functions are not counted.

    Example:
        >>> attention_operations(512, features=64, heads=4)
        83886080

    Raises:
        ConstructionError: if the heads do not divide the features.
    """
    if heads < 1 or features % heads:
        raise ConstructionError(
            f"attention_operations: {heads} heads do not divide {features} features."
        )
    sizes = {"N": length, "M": length, "F": features, "H": heads, "D": features // heads}
    return cost(build_family("multi-head", sizes)).flops


# Attention inside a recurrent network, with one that is built by hand: it reverses a sequence.


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
        results = [self.start]
        for inputs in sequence:
            results.append(self.step(inputs, results[-1]))
        return (
            torch.stack(results[1:])
            if len(results) > 1
            else self.start.new_zeros(0, len(self.bias))
        )


@dataclass(frozen=True, eq=False)
class Decoded:
    """The decoder's outputs and attention weights.

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
            result = attend((self.query @ state)[None], keys, values)
            state = self.decoder.step(result.outputs[0], state)
            outputs.append(self.readout @ state)
            weights.append(result.weights[0])
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
        encoder=_clock_recurrence(clock.roll(1, dims=0), parts),
        decoder=_clock_recurrence(clock.roll(-1, dims=0), kept),
        query=sharpness * read_clock,
        key=read_clock,
        value=read_parts,
        readout=parts.T @ read_parts,
    )


def _clock_recurrence(shift: Tensor, write: Tensor) -> Recurrence:
    """A clock that `shift` moves, beside what `write` makes of the newest input."""
    length, space = len(shift), len(write)
    start = torch.zeros(length + space, dtype=torch.float64)
    start[length - 1] = 1.0
    return Recurrence(
        input_weight=pad(write, (0, 0, length, 0)),
        state_weight=pad(shift, (0, space, 0, space)),
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
