"""The fast evaluation of transformers: what each side knows of the states that attention sums up.

Attention without softmax is a sum over tokens of (value)(key)ᵗ, one matrix for each group of keys,
applied to a query. In the first layer that matrix is a sum of one of each side, so a token's image
is a matrix of the two sides times the token. In later layers either the matrices are summed up
token by token, or scores are taken of all pairs of tokens; and keys and values either have matrices
of their own, or are the tokens themselves, with (key)ᵗ(query) and (output)(value) as the matrices
of the heads. All four programs are written, and the shortest one is run. Between layers tokens
stand in coordinates of which as many as possible are read as they are. Plain attention goes by Gram
matrices (`moments`), whatever its keys share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy
from numpy.typing import NDArray

from rankscope.rank.elimination import rank_modulo, solve_modulo
from rankscope.rank.measured import Residues, SplitFunction
from rankscope.rank.networks.moments import MomentFunction
from rankscope.rank.networks.network import fraction_modulo
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
from rankscope.rank.networks.polynomial_transformer import (
    PolynomialTransformer,
    TransformerShape,
    rotation_entries,
)
from rankscope.rank.partition import Partition


def transformer_split(
    network: PolynomialTransformer,
    partition: Partition,
    *,
    seed: int,
    prime: int,
    weights: Mapping[str, Residues],
) -> SplitFunction:
    """The output as a function of the two sides."""
    layers = [_expanded(network.shape, weights, n, prime) for n in range(network.shape.depth)]
    if network.shape.is_attention:
        plain = {name: array for name, array in weights.items() if name == "positions"}
        for number, layer in enumerate(layers):
            for name in ("query", "key", "value", "output"):
                plain[f"layers.{number}.{name}"] = getattr(layer, name)
        attention = network.as_attention()
        return MomentFunction(attention, partition, seed=seed, prime=prime, weights=plain)
    positions = weights.get("positions")
    ways = [(network.shape, _rebased(network.shape, layers, prime, is_merged=False))]
    if not network.shape.has_rotary:  # turned keys belong to their place
        chosen = _rebased(network.shape, layers, prime, is_merged=True)
        ways.append(_merged(network.shape, chosen, prime))
    ways = [(shape, [*chosen[:-1], _read_out(shape, chosen, prime)]) for shape, chosen in ways]
    writings = [
        partial(_output, shape, chosen, positions, by_scores=by_scores)
        for shape, chosen in ways
        for by_scores in (False, True)
    ]
    return ProgramFunction(network, partition, writings, seed=seed, prime=prime)


@dataclass(frozen=True)
class _Layer:
    """The weights of a layer as if every head had keys and values of its own.

    `query`, `key` and `value` are (heads, head_size, width), `output` (width, heads, head_size);
    `gate` holds the three matrices of the gated part, if there is one. What a residual adds to
    attention is `carry` times the token, and to the gate `gate_carry` times. With `is_read_out`
    the value of a head is one number, and the values of heads differ though they share keys.
    """

    query: Residues
    key: Residues
    value: Residues
    output: Residues
    gate: tuple[Residues, Residues, Residues] | None
    carry: Residues | None = None
    gate_carry: Residues | None = None
    is_read_out: bool = False


def _expanded(
    shape: TransformerShape, weights: Mapping[str, Residues], number: int, prime: int
) -> _Layer:
    prefix = f"layers.{number}"
    groups = [shape.group(head) for head in range(shape.heads)]
    made = {name: weights[f"{prefix}.{name}"] for name in ("query", "key", "value")}
    made = {name: w if name == "query" else w[groups] for name, w in made.items()}
    for name, latent in (("query", "query_latent"), ("key", "latent"), ("value", "latent")):
        if f"{prefix}.{latent}" in weights:
            made[name] = multiply_weights(made[name], weights[f"{prefix}.{latent}"], prime)
    gate = None
    if shape.gated is not None:
        left, right, output = (
            weights[f"{prefix}.gate_{name}"] for name in ("left", "right", "output")
        )
        gate = (left, right, output)
    query, key, value = made["query"], made["key"], made["value"]
    return _Layer(query, key, value, weights[f"{prefix}.output"], gate)


def _rebased(
    shape: TransformerShape, layers: Sequence[_Layer], prime: int, *, is_merged: bool
) -> list[_Layer]:
    """The same function, tokens in other coordinates after each layer; the last gives only one."""
    made = []
    units = numpy.eye(shape.width, dtype=numpy.int64)
    basis = inverse = units  # from tokens to coordinates, and back
    for number, layer in enumerate(layers):
        query, key, value = (
            multiply_weights(matrix, inverse, prime)
            for matrix in (layer.query, layer.key, layer.value)
        )
        sums = _by_heads(layer.output, value, prime) if is_merged else layer.output
        bases = _bases(shape, layers, number, prime, before=basis, sums=sums)
        output = multiply_weights(bases[0], layer.output.reshape(shape.width, -1), prime)
        output = output.reshape(len(output), *layer.output.shape[1:])
        carry = multiply_weights(bases[0], inverse, prime)
        read = replace(layer, query=query, key=key, value=value, output=output, carry=carry)
        if layer.gate is not None:
            inverse = solve_modulo(bases[0], units, prime)
            left, right = (multiply_weights(matrix, inverse, prime) for matrix in layer.gate[:2])
            gate = (left, right, multiply_weights(bases[1], layer.gate[2], prime))
            carry = multiply_weights(bases[1], inverse, prime)
            read = replace(read, gate=gate, gate_carry=carry)
        made.append(read)
        if number < shape.depth - 1:
            basis, inverse = bases[-1], solve_modulo(bases[-1], units, prime)
    return made


def _bases(
    shape: TransformerShape,
    layers: Sequence[_Layer],
    number: int,
    prime: int,
    *,
    before: Residues,
    sums: Residues,
) -> list[Residues]:
    """The coordinates after attention, and after the gate if there is one.

    A gate has coordinates of its own. A residual keeps those `before` the layer; without one tokens
    stay as they come out of attention (`sums` takes them to tokens) or of the gate, and what
    follows belongs to the next layer's matrices. The first layer's sums are those of sides, so
    that any coordinates are free: those which the next layer reads.
    """
    layer, is_last = layers[number], number == shape.depth - 1
    only = numpy.eye(shape.width, dtype=numpy.int64)[:1]
    following = only if is_last else _first_read(shape, layers, number + 1, prime)
    if layer.gate is not None:
        own = completed_basis(numpy.vstack(layer.gate[:2]), prime)
        if is_last or shape.has_residual:
            return [own, only if is_last else own]
        return [own, _inverse(layer.gate[2], following, prime)]
    if is_last or number == 0:
        return [only if is_last else completed_basis(following, prime)]
    sums = sums.reshape(shape.width, -1)
    return [before if shape.has_residual else _inverse(sums, following, prime)]


def _inverse(matrix: Residues, rows: Residues, prime: int) -> Residues:
    """The inverse of a matrix, or a basis from rows if it has none."""
    size = len(matrix)
    if matrix.shape != (size, size) or rank_modulo(matrix, prime) < size:
        return completed_basis(rows, prime)
    return solve_modulo(matrix, numpy.eye(size, dtype=numpy.int64), prime)


def _first_read(
    shape: TransformerShape, layers: Sequence[_Layer], number: int, prime: int
) -> Residues:
    """What a layer reads of each token, by importance: the output's row of each head, values."""
    layer = layers[number]
    rows = layer.value.reshape(-1, shape.width)
    if number < shape.depth - 1 or layer.gate is not None:
        return rows
    last = _by_heads(layer.output[:1], layer.value, prime)
    return numpy.vstack([last.reshape(-1, shape.width), rows])


def _by_heads(output: Residues, value: Residues, prime: int) -> Residues:
    """O_h V_h of all heads, (outputs, heads, width)."""
    return multiply_weights(output.transpose(1, 0, 2), value, prime).transpose(1, 0, 2)


def _merged(
    shape: TransformerShape, layers: Sequence[_Layer], prime: int
) -> tuple[TransformerShape, list[_Layer]]:
    """The same function, with the tokens themselves for keys and values of all heads."""
    tokens = numpy.eye(shape.width, dtype=numpy.int64)[None].repeat(shape.heads, axis=0)
    merged = [
        replace(
            layer,
            query=multiply_weights(layer.key.transpose(0, 2, 1), layer.query, prime),
            key=tokens,
            value=tokens,
            output=_by_heads(layer.output, layer.value, prime),
        )
        for layer in layers
    ]
    plain = replace(shape, head_size=shape.width, num_kv_heads=1, latent=None, query_latent=None)
    return plain, merged


def _read_out(shape: TransformerShape, layers: Sequence[_Layer], prime: int) -> _Layer:
    """The last layer; without a gate each head gives one number, and it may be its value."""
    layer = layers[-1]
    are_shared = shape.num_kv_heads < shape.heads and not _are_tokens(layer)
    if layer.gate is not None or shape.depth == 1 or are_shared:
        return layer
    value = _by_heads(layer.output, layer.value, prime).transpose(1, 0, 2)
    ones = numpy.ones((1, shape.heads, 1), dtype=numpy.int64)
    return replace(layer, value=value, output=ones, is_read_out=True)


def _are_tokens(layer: _Layer) -> bool:
    """Whether values are the tokens themselves."""
    units = numpy.eye(layer.value.shape[2], dtype=numpy.int64)
    return layer.value.shape[1:] == units.shape and bool((layer.value == units).all())


def _output(
    shape: TransformerShape,
    layers: Sequence[_Layer],
    positions: Residues | None,
    writer: PairWriter,
    inputs: list[PairVector],
    *,
    by_scores: bool,
) -> PairValue:
    tokens = dict(enumerate(inputs))
    if positions is not None:
        tokens = {
            place: [
                writer.shifted(v, int(p)) for v, p in zip(vector, positions[place], strict=True)
            ]
            for place, vector in tokens.items()
        }
    tokens = {place: tokens[place] for place in shape.seen}
    for number, layer in enumerate(layers):
        wanted = [shape.output_position] if number == shape.depth - 1 else list(tokens)
        attention = _Attention(shape, layer, writer, tokens)
        is_last = number == shape.depth - 1  # few queries: scores are cheaper than states
        made = (attention.by_scores if by_scores or is_last else attention.by_states)(wanted)
        carry = layer.carry if shape.has_residual else None
        tokens = {place: _after(writer, carry, tokens[place], made[place]) for place in wanted}
        tokens = {place: writer.whole(token) for place, token in tokens.items()}
        if layer.gate is not None:
            carry = layer.gate_carry if shape.has_residual else None
            tokens = {
                place: _after(writer, carry, token, _gated(writer, layer.gate, token))
                for place, token in tokens.items()
            }
            tokens = {place: writer.whole(token) for place, token in tokens.items()}
    return tokens[shape.output_position][0]


def _after(
    writer: PairWriter, carry: Residues | None, read: PairVector, made: PairVector
) -> PairVector:
    if carry is None:
        return made
    kept = writer.apply(carry, read)
    return [writer.add(one, other) for one, other in zip(kept, made, strict=True)]


def _gated(
    writer: PairWriter, gate: tuple[Residues, Residues, Residues], token: PairVector
) -> PairVector:
    left, right = (writer.apply(matrix, token) for matrix in gate[:2])
    products = [writer.dot([one], [other]) for one, other in zip(left, right, strict=True)]
    return writer.apply(gate[2], products)


class _Attention:
    """One layer of attention on tokens that are values of both sides."""

    def __init__(
        self,
        shape: TransformerShape,
        layer: _Layer,
        writer: PairWriter,
        tokens: Mapping[int, PairVector],
    ) -> None:
        self.shape, self.layer, self.writer, self.tokens = shape, layer, writer, tokens
        groups = range(0, shape.heads, shape.heads // shape.num_kv_heads)
        self.keys, self.values = {}, {}
        for place, token in tokens.items():
            turned = self._turned(layer.key, place)
            self.keys[place] = [writer.apply(turned[head], token) for head in groups]
            heads = range(shape.heads) if layer.is_read_out else groups
            self.values[place] = [writer.apply(layer.value[head], token) for head in heads]
        self.is_first = all(not v.both for token in tokens.values() for v in token)

    def by_states(self, wanted: Sequence[int]) -> dict[int, PairVector]:
        """Sums of (value)(key)ᵗ, applied to queries."""
        sums = self._states(wanted)
        writer, made = self.writer, {}
        for place in wanted:
            queries = self._turned(self.layer.query, place)
            states = sums[place]
            if self.is_first:
                of_heads = [states[self.shape.group(head)] for head in range(self.shape.heads)]
                made[place] = apply_states(
                    writer, of_heads, queries, self._flat_output(), self.tokens[place]
                )
                continue
            mixed: PairVector = []
            for head in range(self.shape.heads):
                query = writer.apply(queries[head], self.tokens[place])
                mixed += [writer.dot(row, query) for row in states[self.shape.group(head)]]
            made[place] = writer.apply(self._flat_output(), mixed)
        return made

    def by_scores(self, wanted: Sequence[int]) -> dict[int, PairVector]:
        """Values times scores, summed over tokens; the first layer is always taken by states."""
        if self.is_first:
            return self.by_states(wanted)
        writer, made = self.writer, {}
        for place in wanted:
            queries = self._turned(self.layer.query, place)
            seen = [j for j in self.tokens if j <= place or not self.shape.is_causal]
            mixed: PairVector = []
            for head in range(self.shape.heads):
                group = self.shape.group(head)
                query = writer.apply(queries[head], self.tokens[place])
                scores = [writer.dot(query, self.keys[j][group]) for j in seen]
                values = head if self.layer.is_read_out else group
                columns = zip(*(self.values[j][values] for j in seen), strict=True)
                mixed += [writer.dot(scores, column) for column in columns]
            made[place] = writer.apply(self._flat_output(), mixed)
        return made

    def _states(self, wanted: Sequence[int]) -> dict[int, list[PairMatrix]]:
        """For each wanted place and group, the matrix (head_size, head_size) by rows."""
        if not self.shape.is_causal:
            states = self._summed(list(self.tokens))
            return dict.fromkeys(wanted, states)
        if len(wanted) == 1:
            return {wanted[0]: self._summed([j for j in self.tokens if j <= wanted[0]])}
        writer, sums = self.writer, {}
        size = range(self.shape.head_size)
        running = [[[ZERO for _ in size] for _ in size] for _ in range(self.shape.num_kv_heads)]
        for place in self.tokens:
            running = [
                add_outer(writer, *parts)
                for parts in zip(running, self.values[place], self.keys[place], strict=True)
            ]
            sums[place] = running
        return sums

    def _summed(self, places: list[int]) -> list[PairMatrix]:
        """The states that some tokens add up to."""
        states = []
        for group in range(self.shape.num_kv_heads):
            keys = list(zip(*(self.keys[j][group] for j in places), strict=True))
            values = list(zip(*(self.values[j][group] for j in places), strict=True))
            states.append([[self.writer.dot(value, key) for key in keys] for value in values])
        return states

    def _flat_output(self) -> NDArray[numpy.int64]:
        return self.layer.output.reshape(len(self.layer.output), -1)

    def _turned(self, matrices: Residues, place: int) -> NDArray[numpy.int64]:
        """Matrices (heads, head_size, width), their rows turned as the place asks."""
        if not self.shape.has_rotary:
            return matrices
        size, prime = self.shape.head_size, self.writer.prime
        entries = [fraction_modulo(e, prime) for e in rotation_entries(size, place)]
        turn = numpy.array(entries, dtype=numpy.int64).reshape(size, size)
        return multiply_weights(turn, matrices, prime)
