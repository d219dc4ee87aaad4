"""The fast evaluation of recurrences: what each side knows of the states, and what pairs know.

States that are linear in what the tokens write (all kinds but the delta rule and the selective one)
are in the first layer a sum of one of each side; from the second layer on, and with the other two
kinds from the first token of the other side on, they belong to pairs of points.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy

from rankscope.rank.measured import Residues, SplitFunction
from rankscope.rank.networks.pair_programs import (
    ZERO,
    PairValue,
    PairVector,
    PairWriter,
    ProgramFunction,
)
from rankscope.rank.networks.recurrence import Kind, Recurrence, RecurrenceShape
from rankscope.rank.networks.transformer_programs import product_modulo
from rankscope.rank.partition import Partition

PairMatrix = list[PairVector]


def recurrence_split(
    network: Recurrence,
    partition: Partition,
    *,
    seed: int,
    prime: int,
    weights: Mapping[str, Residues],
) -> SplitFunction:
    """The output as a function of the two sides."""
    shape = network.shape
    layers = [
        {
            name.removeprefix(f"layers.{number}."): array
            for name, array in weights.items()
            if name.startswith(f"layers.{number}.")
        }
        for number in range(shape.depth)
    ]
    # Without the delta rule the last layer may also be read by scores of all tokens.
    choices = (False, True) if shape.kind is Kind.DECAY else (False,)
    writings = [partial(_output, shape, layers, by_scores=choice) for choice in choices]
    return ProgramFunction(network, partition, writings, seed=seed, prime=prime)


def _output(
    shape: RecurrenceShape,
    layers: Sequence[Mapping[str, Residues]],
    writer: PairWriter,
    inputs: list[PairVector],
    *,
    by_scores: bool,
) -> PairValue:
    tokens = inputs[: shape.output_position + 1]
    for number, own in enumerate(layers):
        is_last = number == shape.depth - 1
        if not shape.kind.has_matrix_state:
            tokens = _vector_layer(shape, own, writer, tokens, is_last=is_last)
        elif is_last and by_scores:
            tokens = [_decay_by_scores(shape, own, writer, tokens)]
        else:
            tokens = _matrix_layer(shape, own, writer, tokens, is_last=is_last)
    return tokens[-1][0]


def _matrix_layer(
    shape: RecurrenceShape,
    own: Mapping[str, Residues],
    writer: PairWriter,
    tokens: list[PairVector],
    *,
    is_last: bool,
) -> list[PairVector]:
    """The state of every head is a matrix (head_size, state)."""
    heads = range(shape.heads)
    states: list[PairMatrix] = [
        [[ZERO] * shape.state for _ in range(shape.head_size)] for _ in heads
    ]
    outputs = own["output"].reshape(shape.width, -1)
    made = []
    for number, token in enumerate(tokens):
        for head in heads:
            update = _decayed if shape.kind is Kind.DECAY else _corrected
            states[head] = update(shape, own, writer, states[head], (head, token))
        if is_last and number < len(tokens) - 1:
            continue
        if all(not v.both for state in states for row in state for v in row):
            made.append(_by_matrix(own, writer, states, token))
            continue
        answers: PairVector = []
        for head in heads:
            query = writer.apply(own["query"][head], token)
            answers += [writer.dot(row, query) for row in states[head]]
        made.append(writer.apply(outputs, answers))
    return made


def _decayed(
    shape: RecurrenceShape,
    own: Mapping[str, Residues],
    writer: PairWriter,
    state: PairMatrix,
    written: tuple[int, PairVector],
) -> PairMatrix:
    """γS + v kᵗ."""
    del shape
    head, token = written
    decay = int(own["decay"][head])
    key, value = (writer.apply(own[name][head], token) for name in ("key", "value"))
    return [
        [
            writer.dot([one], [other], plus=writer.mix([decay], [before]))
            for other, before in zip(key, row, strict=True)
        ]
        for one, row in zip(value, state, strict=True)
    ]


def _corrected(
    shape: RecurrenceShape,
    own: Mapping[str, Residues],
    writer: PairWriter,
    state: PairMatrix,
    written: tuple[int, PairVector],
) -> PairMatrix:
    """S + β (v - S k) kᵗ."""
    head, token = written
    key, value = (writer.apply(own[name][head], token) for name in ("key", "value"))
    known = [writer.dot(row, key) for row in state]
    missing = [writer.mix([1, -1], pair) for pair in zip(value, known, strict=True)]
    if shape.has_input_rate:
        rate = writer.mix(own["rate"][head].tolist(), token)
        scaled = [writer.dot([rate], [other]) for other in key]
    else:
        scaled = [writer.mix([int(own["rate"][head])], [other]) for other in key]
    return [
        [writer.dot([one], [other], plus=before) for other, before in zip(scaled, row, strict=True)]
        for one, row in zip(missing, state, strict=True)
    ]


def _by_matrix(
    own: Mapping[str, Residues], writer: PairWriter, states: list[PairMatrix], token: PairVector
) -> PairVector:
    """The matrix of a layer whose state is one of each side, times a token."""
    stacked = [
        writer.apply(own["query"][head].T, row)
        for head, state in enumerate(states)
        for row in state
    ]
    columns = [list(column) for column in zip(*stacked, strict=True)]
    outputs = own["output"].reshape(len(token), -1)
    return [
        writer.dot([writer.mix(row, column) for column in columns], token)
        for row in outputs.tolist()
    ]


def _decay_by_scores(
    shape: RecurrenceShape,
    own: Mapping[str, Residues],
    writer: PairWriter,
    tokens: list[PairVector],
) -> PairVector:
    """The last token alone: values times scores and powers of the decay, summed over tokens."""
    prime = writer.prime
    sums: PairVector = []
    maps = []
    for head in range(shape.heads):
        asked = product_modulo(own["key"][head].T, own["query"][head], prime)
        query = writer.apply(asked, tokens[-1])
        decay = int(own["decay"][head])
        powers = [pow(decay, len(tokens) - 1 - place, prime) for place in range(len(tokens))]
        scores = [writer.dot(query, token) for token in tokens]
        scaled = [
            [writer.mix([power], [entry]) for entry in token]
            for power, token in zip(powers, tokens, strict=True)
        ]
        sums += [writer.dot(scores, column) for column in zip(*scaled, strict=True)]
        maps.append(product_modulo(own["output"][:, head], own["value"][head], prime))
    return writer.apply(numpy.concatenate(maps, axis=1), sums)


def _vector_layer(
    shape: RecurrenceShape,
    own: Mapping[str, Residues],
    writer: PairWriter,
    tokens: list[PairVector],
    *,
    is_last: bool,
) -> list[PairVector]:
    """The state of every head is a vector."""
    heads = range(shape.heads)
    states: list[PairVector] = [[ZERO] * shape.state for _ in heads]
    made = []
    for number, token in enumerate(tokens):
        for head in heads:
            states[head] = [
                writer.add(kept, written)
                for kept, written in zip(
                    _kept(shape, own, writer, states[head], (head, token)),
                    writer.apply(own["write"][head], token),
                    strict=True,
                )
            ]
        if is_last and number < len(tokens) - 1:
            continue
        output: PairVector = []
        for head in heads:
            read = writer.apply(own["read"][head], states[head])
            gate = writer.apply(own["gate"][head], token)
            output += [writer.dot([one], [other]) for one, other in zip(read, gate, strict=True)]
        made.append(output)
    return made


def _kept(
    shape: RecurrenceShape,
    own: Mapping[str, Residues],
    writer: PairWriter,
    state: PairVector,
    read: tuple[int, PairVector],
) -> PairVector:
    """A h, with A = A₀ + Σ x_i A_i if it is selective."""
    head, token = read
    transition = own["transition"][head]
    if shape.kind is Kind.DIAGONAL:
        pairs = zip(transition.tolist(), state, strict=True)
        return [writer.mix([factor], [entry]) for factor, entry in pairs]
    if shape.kind is Kind.DENSE:
        return writer.apply(transition, state)
    if all(entry == ZERO for entry in state):
        return state
    selection = own["selection"][head]
    size = range(shape.state)
    matrix = [
        [
            writer.shifted(
                writer.mix(selection[:, row, column].tolist(), token), int(transition[row, column])
            )
            for column in size
        ]
        for row in size
    ]
    return [writer.dot(row, state) for row in matrix]
