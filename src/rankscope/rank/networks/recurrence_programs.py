"""The fast evaluation of recurrences: what each side knows of the states, and what pairs know.

States that are linear in what the tokens write (all kinds but the delta rule and the selective one)
are in the first layer a sum of one of each side; from the second layer on, and with the other two
kinds from the first token of the other side on, they belong to pairs of points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy

from rankscope.rank.elimination import solve_modulo
from rankscope.rank.measured import Residues, SplitFunction
from rankscope.rank.networks.pair_programs import (
    ZERO,
    PairMatrix,
    PairValue,
    PairVector,
    PairWriter,
    ProgramFunction,
    add_outer,
    apply_states,
    completed_basis,
    multiply_weights,
)
from rankscope.rank.networks.recurrence import Kind, Recurrence, RecurrenceShape
from rankscope.rank.partition import Partition


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
    if shape.kind in (Kind.DENSE, Kind.SELECTIVE):
        layers = [_in_read_basis(layer, prime) for layer in layers]
    if shape.kind.has_matrix_state:
        layers = _rebased(shape, layers, prime)
    # What the tokens write may be summed up in states, or read by scores of all pairs of tokens.
    choices = (False, True) if shape.kind.has_matrix_state else (False,)
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
    for number, weights in enumerate(layers):
        layer = _Layer(shape, weights, writer)
        is_last = number == shape.depth - 1
        if shape.kind is Kind.DELTA and by_scores:
            tokens = layer.delta_by_scores(tokens, is_last=is_last)
        elif is_last and by_scores:
            tokens = [layer.decay_by_scores(tokens)]
        else:
            tokens = layer.run(tokens, is_last=is_last)
        if shape.kind not in (Kind.DIAGONAL, Kind.DENSE):  # the next layer multiplies tokens
            tokens = [writer.whole(token) for token in tokens]
    return tokens[-1][0]


@dataclass(frozen=True)
class _Layer:
    """One layer on tokens that are values of both sides."""

    shape: RecurrenceShape
    weights: Mapping[str, Residues]
    writer: PairWriter

    def run(self, tokens: list[PairVector], *, is_last: bool) -> list[PairVector]:
        """The tokens after the layer; of the last layer only the last one."""
        shape = self.shape
        is_matrix = shape.kind.has_matrix_state
        rows = shape.head_size if is_matrix else 1
        states: list[PairMatrix] = [
            [[ZERO] * shape.state for _ in range(rows)] for _ in range(shape.heads)
        ]
        update = {Kind.DECAY: self._decayed, Kind.DELTA: self._corrected}.get(
            shape.kind, self._written
        )
        read = self._read_matrices if is_matrix else self._read_vectors
        made = []
        for number, token in enumerate(tokens):
            states = [update(head, token, state) for head, state in enumerate(states)]
            if number == len(tokens) - 1 or not is_last:
                made.append(read(token, states))
        return made

    def decay_by_scores(self, tokens: list[PairVector]) -> PairVector:
        """Coordinate 0 of the last token: values times scores and powers of the decay."""
        own, writer = self.weights, self.writer
        scores: PairVector = []
        values: PairVector = []
        read = _read_rows(own, writer.prime)
        for head in range(self.shape.heads):
            asked = multiply_weights(own["key"][head].T, own["query"][head], writer.prime)
            query = writer.apply(asked, tokens[-1])
            decay = int(own["decay"][head])
            powers = [pow(decay, len(tokens) - 1 - n, writer.prime) for n in range(len(tokens))]
            scores += [writer.dot(query, token) for token in tokens]
            rows = [read[head] * power % writer.prime for power in powers]
            values += [writer.mix(r.tolist(), t) for r, t in zip(rows, tokens, strict=True)]
        return [writer.dot(scores, values)]

    def delta_by_scores(self, tokens: list[PairVector], *, is_last: bool) -> list[PairVector]:
        """S = sum of u_j k_jᵗ with u_t = β (v_t - sum over j < t of u_j (k_j · k_t)).

        The u are kept behind the output matrix; the last layer needs coordinate 0 of them alone.
        """
        writer = self.writer
        width = 1 if is_last else self.shape.width
        places = range(len(tokens) - 1 if is_last else 0, len(tokens))
        scores: dict[int, PairVector] = {place: [] for place in places}
        written: list[list[PairVector]] = []  # for each head and token
        for head in range(self.shape.heads):
            keys = [self._applied("key", head, token) for token in tokens]
            written.append(self._corrections(head, tokens, keys, width))
            for place in places:
                query = self._applied("query", head, tokens[place])
                scores[place] += [writer.dot(key, query) for key in keys[: place + 1]]
        made = []
        for place in places:
            seen = [vector for vectors in written for vector in vectors[: place + 1]]
            made.append([writer.dot(column, scores[place]) for column in zip(*seen, strict=True)])
        return made

    def _corrections(
        self, head: int, tokens: list[PairVector], keys: list[PairVector], width: int
    ) -> list[PairVector]:
        """The u of all tokens, behind the first rows of the output matrix.

        Either the key or the u before it is multiplied by -β: whichever has fewer entries, unless
        the keys are those of sides.
        """
        own, writer, rates = self.weights, self.writer, self.weights["rate"][head]
        value = multiply_weights(own["output"][:width, head], own["value"][head], writer.prime)
        factor = 1 if self.shape.has_input_rate else int(rates)
        of_pairs = any(entry.both for key in keys for entry in key)
        by_key = width >= self.shape.state or not of_pairs
        made: list[PairVector] = []
        scaled: list[PairVector] = []
        for place, token in enumerate(tokens):
            asked = [writer.mix([-factor], [v]) for v in keys[place]] if by_key else keys[place]
            known = [writer.dot(key, asked) for key in keys[:place]]
            new = writer.apply(value * factor % writer.prime, token)
            vector = [
                writer.dot([before[row] for before in scaled], known, plus=entry)
                for row, entry in enumerate(new)
            ]
            if self.shape.has_input_rate:
                rate = writer.mix(rates.tolist(), token)
                vector = [writer.dot([rate], [entry]) for entry in vector]
            vector = writer.whole(vector)
            made.append(vector)
            scaled.append(vector if by_key else [writer.mix([-factor], [v]) for v in vector])
        return made

    def _applied(self, name: str, head: int, vector: PairVector) -> PairVector:
        return self.writer.apply(self.weights[name][head], vector)

    def _decayed(self, head: int, token: PairVector, state: PairMatrix) -> PairMatrix:
        """γS + v kᵗ."""
        decay, writer = int(self.weights["decay"][head]), self.writer
        key, value = (self._applied(name, head, token) for name in ("key", "value"))
        before = [[writer.mix([decay], [entry]) for entry in row] for row in state]
        return add_outer(writer, before, value, key)

    def _corrected(self, head: int, token: PairVector, state: PairMatrix) -> PairMatrix:
        """S + β (v - S k) kᵗ."""
        writer, rates = self.writer, self.weights["rate"][head]
        key, value = (self._applied(name, head, token) for name in ("key", "value"))
        known = [writer.dot(row, key) for row in state]
        missing = [writer.mix([1, -1], pair) for pair in zip(value, known, strict=True)]
        if self.shape.has_input_rate:
            rate = writer.mix(rates.tolist(), token)
            scaled = [writer.dot([rate], [other]) for other in key]
        else:
            scaled = [writer.mix([int(rates)], [other]) for other in key]
        return add_outer(writer, state, missing, scaled)

    def _written(self, head: int, token: PairVector, state: PairMatrix) -> PairMatrix:
        """A h + B x, of a state that is one row."""
        kept, new = self._kept(head, token, state[0]), self._applied("write", head, token)
        return [[self.writer.add(one, other) for one, other in zip(kept, new, strict=True)]]

    def _kept(self, head: int, token: PairVector, state: PairVector) -> PairVector:
        """A h, with A = A₀ + Σ x_i A_i if it is selective."""
        writer, transition = self.writer, self.weights["transition"][head]
        if self.shape.kind is Kind.DIAGONAL:
            pairs = zip(transition.tolist(), state, strict=True)
            return [writer.mix([factor], [entry]) for factor, entry in pairs]
        if self.shape.kind is Kind.DENSE:
            return writer.apply(transition, state)
        if all(entry == ZERO for entry in state):
            return state
        selection, size = self.weights["selection"][head], range(self.shape.state)
        matrix = [
            [
                writer.shifted(writer.mix(selection[:, row, column].tolist(), token), int(constant))
                for column, constant in zip(size, transition[row], strict=True)
            ]
            for row in size
        ]
        return [writer.dot(row, state) for row in matrix]

    def _read_matrices(self, token: PairVector, states: list[PairMatrix]) -> PairVector:
        queries, outputs = self.weights["query"], self.weights["output"].reshape(len(token), -1)
        if all(not v.both for state in states for row in state for v in row):
            return apply_states(self.writer, states, queries, outputs, token)
        answers: PairVector = []
        for head, state in enumerate(states):
            query = self._applied("query", head, token)
            answers += [self.writer.dot(row, query) for row in state]
        return self.writer.apply(outputs, answers)

    def _read_vectors(self, token: PairVector, states: list[PairMatrix]) -> PairVector:
        output: PairVector = []
        for head, (state,) in enumerate(states):
            read, gate = self._applied("read", head, state), self._applied("gate", head, token)
            output += [
                self.writer.dot([one], [other]) for one, other in zip(read, gate, strict=True)
            ]
        return output


def _rebased(
    shape: RecurrenceShape, layers: Sequence[Mapping[str, Residues]], prime: int
) -> list[dict[str, Residues]]:
    """The same function, tokens in coordinates which the next layer reads as they are.

    The last layer of linear attention reads values of one number; all others read keys first.
    """
    units = numpy.eye(shape.width, dtype=numpy.int64)
    inverse, made = units, []  # from coordinates to tokens
    for number, own in enumerate(layers):
        names = ("query", "key", "value", *(("rate",) if shape.has_input_rate else ()))
        new = {**own, **{name: multiply_weights(own[name], inverse, prime) for name in names}}
        if number < shape.depth - 1:
            following = layers[number + 1]
            rows = following["key"].reshape(-1, shape.width)
            if shape.kind is Kind.DECAY and number == shape.depth - 2:
                rows = numpy.vstack([_read_rows(following, prime), rows])
            basis = completed_basis(rows, prime)
            output = multiply_weights(basis, own["output"].reshape(shape.width, -1), prime)
            new["output"] = output.reshape(own["output"].shape)
            inverse = solve_modulo(basis, units, prime)
        made.append(new)
    return made


def _read_rows(own: Mapping[str, Residues], prime: int) -> Residues:
    """For each head the row that coordinate 0 of the output reads of a token."""
    return numpy.vstack(
        [
            multiply_weights(own["output"][:1, head], value, prime)
            for head, value in enumerate(own["value"])
        ]
    )


def _in_read_basis(own: Mapping[str, Residues], prime: int) -> dict[str, Residues]:
    """The same layer with states in coordinates of which as many as possible are read as they are.

    With the new states T h: reads C T⁻¹, transitions T A T⁻¹ and writes T B.
    """
    made = {name: array.copy() for name, array in own.items()}
    for head, read in enumerate(own["read"]):
        basis = completed_basis(read, prime)
        inverse = solve_modulo(basis, numpy.eye(len(basis), dtype=numpy.int64), prime)
        made["read"][head] = multiply_weights(read, inverse, prime)
        made["write"][head] = multiply_weights(basis, own["write"][head], prime)
        for name in ("transition", "selection"):
            if name in own:
                turned = multiply_weights(basis, own[name][head], prime)
                made[name][head] = multiply_weights(turned, inverse, prime)
    return made
