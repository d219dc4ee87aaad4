"""The fast evaluation of message passing: what a side sends to itself is computed once a point."""

from collections.abc import Mapping
from functools import partial

from rankscope.rank.measured import Residues, SplitFunction
from rankscope.rank.networks.message_passing import MessagePassing
from rankscope.rank.networks.pair_programs import (
    PairValue,
    PairVector,
    PairWriter,
    ProgramFunction,
)
from rankscope.rank.partition import Partition


def message_passing_split(
    network: MessagePassing,
    partition: Partition,
    *,
    seed: int,
    prime: int,
    weights: Mapping[str, Residues],
) -> SplitFunction:
    """The output as a function of the two sides."""
    writing = partial(_output, network, weights)
    return ProgramFunction(network, partition, [writing], seed=seed, prime=prime)


def _output(
    network: MessagePassing,
    weights: Mapping[str, Residues],
    writer: PairWriter,
    inputs: list[PairVector],
) -> PairValue:
    states = dict(enumerate(inputs))
    for layer in range(1, network.depth + 1):
        needed = network.needed(layer)
        near = network.graph.neighbourhoods
        # The output reads one coordinate only.
        rows = weights[f"maps.{layer - 1}"][: 1 if layer == network.depth else None]
        sent = {
            j: writer.apply(rows, states[j]) for j in sorted({j for i in needed for j in near[i]})
        }
        states = {i: _product(writer, [sent[j] for j in near[i]]) for i in needed}
    return _product(writer, [states[i] for i in sorted(states)])[0]


def _product(writer: PairWriter, vectors: list[PairVector]) -> PairVector:
    return [_factors(writer, list(factors)) for factors in zip(*vectors, strict=True)]


def _factors(writer: PairWriter, factors: list[PairValue]) -> PairValue:
    """One product of many values: those of one side first, then those that pairs have."""
    sides: list[list[PairValue]] = [[], [], []]
    for value in factors:
        place = 2 if value.both or (value.left and value.right) else int(not value.left)
        sides[place].append(value)
    made = [_chain(writer, side) for side in sides if side]
    return _chain(writer, made)


def _chain(writer: PairWriter, values: list[PairValue]) -> PairValue:
    product = values[0]
    for value in values[1:]:
        product = writer.dot([product], [value])
    return product
