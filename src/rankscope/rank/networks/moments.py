"""The fast evaluation of attention on additive moments: Gram matrices and their programs."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from rankscope.rank.measured import Numbers, Residues, SplitFunction
from rankscope.rank.networks.kernels import (
    Program,
    evaluate_pairs,
)
from rankscope.rank.networks.network import Modulo, drawn_points, interpolation_modulo
from rankscope.rank.networks.program_writer import ProgramWriter, balanced
from rankscope.rank.networks.self_attention import SelfAttention
from rankscope.rank.partition import Partition
from rankscope.rank.residues import require_prime

# --- Attention as a function of moments: the Gram matrix of the tokens, and one token -------------


@dataclass(frozen=True)
class Piece:
    """What one head adds to M: rows from `first` on, each left[i] · G W_1 G W_2 … G W_s.

    `left` is None for the identity; `inner` holds W_1, …, W_s.
    """

    left: Residues | None
    inner: tuple[Residues, ...]
    first: int

    @property
    def num_rows(self) -> int:
        """Number of rows of M that it adds to."""
        return len(self.inner[0] if self.left is None else self.left)


@dataclass(frozen=True)
class GramForm:
    """All layers but the last as pieces of M, and the output's row of the last one.

    `sizes` are those of the coordinates that enter each layer.
    """

    sizes: tuple[int, ...]
    layers: tuple[tuple[Piece, ...], ...]
    last: tuple[Piece, ...]

    @property
    def is_linear(self) -> bool:
        """Whether M is linear in G."""
        return len(self.last[0].inner) == 1

    @property
    def first(self) -> tuple[Piece, ...]:
        """The first layer, which is also the last one of a network of depth 1."""
        return self.layers[0] if self.layers else self.last

    @property
    def num_first_rows(self) -> int:
        """How many rows of M are additive: all of the first layer, or none."""
        return max(p.first + p.num_rows for p in self.first) if self.is_linear else 0

    @property
    def num_moments(self) -> int:
        """Entries of the Gram matrix, of M in the first layer if it is linear, and of a token."""
        size = self.sizes[0]
        return size * (size + 1) // 2 + self.num_first_rows * size + size


@dataclass(frozen=True)
class _Head:
    """x' = output · value · G W_1 … G W_s x, summed over heads."""

    output: Residues
    value: Residues
    inner: tuple[Residues, ...]


def gram_form(weights: Mapping[str, Residues], depth: int, basis: Residues, prime: int) -> GramForm:
    """Read the weights of a network whose tokens are `basis` (width, size) times coordinates."""
    coordinates = basis
    sizes, layers = [], []
    for number in range(depth - 1):
        heads = _heads(weights, f"layers.{number}", prime)
        pieces, following = _pieces(heads, coordinates, prime)
        sizes.append(coordinates.shape[1])
        layers.append(pieces)
        coordinates = following
    sizes.append(coordinates.shape[1])
    last = tuple(
        Piece(
            _product(prime, head.output[:1], head.value, coordinates),
            _inner(prime, coordinates, head),
            0,
        )
        for head in _heads(weights, f"layers.{depth - 1}", prime)
    )
    return GramForm(tuple(sizes), tuple(layers), last)


def _heads(weights: Mapping[str, Residues], prefix: str, prime: int) -> list[_Head]:
    if f"{prefix}.query" not in weights:
        num_factors = sum(name.startswith(f"{prefix}.factors.") for name in weights)
        first, *inner = (weights[f"{prefix}.factors.{place}"] for place in range(num_factors))
        return [_Head(first, numpy.eye(len(first), dtype=numpy.int64), tuple(inner))]
    query, key, value, output = (
        weights[f"{prefix}.{name}"] for name in ("query", "key", "value", "output")
    )
    return [
        _Head(output[:, head], value[head], (_product(prime, key[head].T, query[head]),))
        for head in range(len(query))
    ]


def _pieces(
    heads: list[_Head], coordinates: Residues, prime: int
) -> tuple[tuple[Piece, ...], Residues]:
    """A layer in coordinates, and the coordinates of its outputs."""
    width, size = coordinates.shape
    head_size = len(heads[0].value)
    inner = [_inner(prime, coordinates, head) for head in heads]
    if len(heads) == 1 and head_size >= size:
        following = _product(prime, heads[0].output, heads[0].value, coordinates)
        return (Piece(None, inner[0], 0),), following
    if len(heads) * head_size <= width:
        lefts = [_product(prime, head.value, coordinates) for head in heads]
        following = numpy.concatenate([head.output for head in heads], axis=1)
        firsts = [number * head_size for number in range(len(heads))]
    else:
        lefts = [_product(prime, head.output, head.value, coordinates) for head in heads]
        following = numpy.eye(width, dtype=numpy.int64)
        firsts = [0] * len(heads)
    return tuple(map(Piece, lefts, inner, firsts)), following


def _inner(prime: int, coordinates: Residues, head: _Head) -> tuple[Residues, ...]:
    return tuple(_product(prime, coordinates.T, factor, coordinates) for factor in head.inner)


def _product(prime: int, *matrices: Residues) -> Residues:
    # Python integers, for products of residues of any prime; the matrices are small.
    product = matrices[0].astype(object)
    for matrix in matrices[1:]:
        product = product @ matrix % prime
    return product.astype(numpy.int64)


# --- The program that computes the output from what the moments of the two sides add up to --------


Vector = list[int]  # values of a program, by number
Matrix = list[Vector]


def gram_program(form: GramForm, prime: int) -> Program:
    """Write the program.

    Its inputs are the upper half of the Gram matrix by rows, then the matrix M of the first layer
    by rows if it is linear in the Gram matrix, then the output's token.
    """
    writer = ProgramWriter(form.num_moments, prime)
    inputs = iter(writer.inputs)
    gram = _symmetric({pair: next(inputs) for pair in _upper(form.sizes[0])}, form.sizes[0])
    matrix = [[next(inputs) for _ in range(form.sizes[0])] for _ in range(form.num_first_rows)]
    token = list(inputs)
    if not form.layers and form.is_linear:
        return writer.finish([writer.dot(matrix[0], token)])
    for number, pieces in enumerate(form.layers):
        if number:
            token = _apply(writer, matrix, token)
            gram = _next_gram(writer, matrix, gram)
        if number or not form.is_linear:
            matrix = _layer_matrix(writer, pieces, gram)
    if not form.layers:
        return writer.finish([_output(writer, form.last, gram, token)])
    return writer.finish([_mapped_output(writer, form.last, matrix, (gram, token))])


def _layer_matrix(writer: ProgramWriter, pieces: tuple[Piece, ...], gram: Matrix) -> Matrix:
    """M, row by row; pieces that reach the same row add up."""
    num_rows = max(piece.first + piece.num_rows for piece in pieces)
    matrix = []
    for row in range(num_rows):
        reaching = [p for p in pieces if p.first <= row < p.first + p.num_rows]
        starts = list(
            itertools.chain.from_iterable(_before_last(writer, p, gram, row) for p in reaching)
        )
        lasts = numpy.concatenate([piece.inner[-1] for piece in reaching])
        matrix.append([writer.mix(column, starts) for column in lasts.T])
    return matrix


def _before_last(writer: ProgramWriter, piece: Piece, gram: Matrix, row: int) -> Vector:
    """left[i] · G W_1 G W_2 … G, one factor short of a row of M."""
    if piece.left is None:
        row_before = gram[row]
    else:
        row_before = [writer.mix(piece.left[row - piece.first], line) for line in gram]
    for factor in piece.inner[:-1]:
        row_before = _apply(writer, gram, [writer.mix(column, row_before) for column in factor.T])
    return row_before


def _next_gram(writer: ProgramWriter, matrix: Matrix, gram: Matrix) -> Matrix:
    """M G Mᵗ."""
    half = [_apply(writer, gram, row) for row in matrix]
    size = len(matrix)
    return _symmetric({(i, j): writer.dot(half[i], matrix[j]) for i, j in _upper(size)}, size)


def _mapped_output(
    writer: ProgramWriter, last: tuple[Piece, ...], matrix: Matrix, moments: tuple[Matrix, Vector]
) -> int:
    """The output from the moments before the last but one layer, whose matrix is given."""
    gram, token = moments
    columns = [list(column) for column in zip(*matrix, strict=True)]
    mapped = _apply(writer, matrix, token)
    left: Vector = []
    right: Vector = []
    for piece in last:
        assert piece.left is not None  # the output's row
        vector = mapped
        for factor in piece.inner[:0:-1]:
            inside = _apply(writer, gram, _mixed_and_applied(writer, factor, vector, columns))
            vector = _apply(writer, matrix, inside)
        inside = _mixed_and_applied(writer, piece.inner[0], vector, columns)
        right += _apply(writer, gram, inside)
        left += [writer.mix(piece.left[0], column) for column in columns]
    return writer.dot(left, right)


def _output(writer: ProgramWriter, last: tuple[Piece, ...], gram: Matrix, token: Vector) -> int:
    """The output of the last layer from its own moments."""
    entries: Vector = []
    for piece in last:
        vector = token
        for factor in piece.inner[::-1]:
            vector = _mixed_and_applied(writer, factor, vector, gram)
        entries += vector
    rows = [piece.left[0] for piece in last if piece.left is not None]
    return writer.mix(numpy.concatenate(rows), entries)


def _mixed_and_applied(
    writer: ProgramWriter,
    factor: Residues,
    vector: Vector,
    matrix: Matrix,
) -> Vector:
    return _apply(writer, matrix, [writer.mix(row, vector) for row in factor])


def _apply(writer: ProgramWriter, matrix: Matrix, vector: Vector) -> Vector:
    return [writer.dot(row, vector) for row in matrix]


def _upper(size: int) -> list[tuple[int, int]]:
    return list(itertools.combinations_with_replacement(range(size), 2))


def _symmetric(values: dict[tuple[int, int], int], size: int) -> Matrix:
    return [[values[min(i, j), max(i, j)] for j in range(size)] for i in range(size)]


# --- Attention on pairs of sample points, by what the moments of the two sides add up to ----------


@dataclass(frozen=True, eq=False)
class Side:
    """How the tokens of one side are made from its sample points.

    Args:
        name: `left` or `right`.
        shape: of a sample point: tokens, input size.
        place: which of its tokens the output stands on; None if that is on the other side.
        embedding: (width, input size), or None if the points are the tokens' coordinates.
        positions: (tokens, width) to add, or None.
    """

    name: str
    shape: tuple[int, int]
    place: int | None
    embedding: Residues | None
    positions: Residues | None


class MomentFunction(SplitFunction):
    """Softmax-free attention as a function of two sides, for any prime below 2^31.

    Sample points are those of `PairwiseFunction`, so the two give identical matrices. Grade k is
    the part of degree k in the right side's Gram matrix.

    Raises:
        PrimeError: if the prime is composite, 2^31 or more, or too small to separate the grades.
    """

    def __init__(
        self,
        network: SelfAttention,
        partition: Partition,
        *,
        seed: int,
        prime: int,
        weights: Mapping[str, Residues],
    ) -> None:
        self.prime = require_prime(prime, below=2**31, who="MomentFunction")
        self.seed = seed
        self.num_grades = len(network.grade_degrees(partition))
        basis, embedding = _coordinates(network, weights)
        self.form = gram_form(weights, network.depth, basis, prime)
        self.program = gram_program(self.form, prime)
        self.left, self.right = (
            Side(
                name,
                (len(side), network.input_size),
                side.index(network.output_position) if network.output_position in side else None,
                embedding,
                weights["positions"][list(side)] if network.has_positions else None,
            )
            for name, side in (("left", partition.left), ("right", partition.right))
        )
        self.scales, self.interpolation = interpolation_modulo(tuple(range(self.num_grades)), prime)

    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        values = self._evaluated(rows, columns, (1,), numpy.ones((1, 1), dtype=numpy.int64))
        return values.reshape(len(rows), len(columns))

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        return self._evaluated(rows, columns, self.scales, self.interpolation)

    def moments(self, side: Side, numbers: Numbers) -> tuple[Residues, Residues]:
        """What adds up over the tokens of a side, and the output's token or zeros.

        The first are (points, moments): the Gram matrix, and M of the first layer if it is linear.
        """
        field = Modulo(self.prime)
        tokens = self._tokens(field, side, numbers)
        gram = field.contract("pti,ptj->pij", tokens, tokens)
        size = gram.shape[1]
        upper = torch.triu_indices(size, size)
        parts = [gram[:, upper[0], upper[1]]]
        if self.form.is_linear:
            parts.append(_first_matrix(field, self.form, gram).flatten(1))
        zeros = tokens.new_zeros(len(numbers), size)
        token = zeros if side.place is None else tokens[:, side.place]
        return torch.cat(parts, dim=1).numpy(), token.numpy()

    def _evaluated(
        self,
        rows: Numbers,
        columns: Numbers,
        scales: tuple[int, ...],
        interpolation: Residues,
    ) -> Residues:
        """Evaluate with the right side's Gram matrix at all scales, and interpolate."""
        left = numpy.concatenate(self.moments(self.left, rows), axis=1)
        additive, token = self.moments(self.right, columns)
        scaled = [numpy.hstack([additive * scale % self.prime, token]).T for scale in scales]
        values = numpy.empty((len(interpolation), len(rows), len(columns)), dtype=numpy.int64)
        writer = ProgramWriter(len(scales), self.prime)
        mixing = writer.finish([writer.mix(line, writer.inputs) for line in interpolation])
        evaluate_pairs(
            self.program,
            mixing,
            balanced(left, self.prime),
            balanced(numpy.stack(scaled), self.prime),
            self.prime,
            values,
        )
        return values

    def _tokens(self, field: Modulo, side: Side, numbers: Numbers) -> Tensor:
        points = drawn_points(self.seed, side.name, numbers, side.shape, self.prime)
        tokens = torch.from_numpy(points)
        if side.embedding is not None:
            tokens = field.contract("kr,ptr->ptk", torch.from_numpy(side.embedding), tokens)
        if side.positions is not None:
            tokens = field.add(tokens, torch.from_numpy(side.positions))
        return tokens


def _coordinates(
    network: SelfAttention, weights: Mapping[str, Residues]
) -> tuple[Residues, Residues | None]:
    """What tokens are a multiple of, and what makes the points coordinates, None if they are.

    A narrow embedding without positions is left out of the tokens: its inputs are coordinates.
    """
    if network.embedding_rank is None:
        return numpy.eye(network.width, dtype=numpy.int64), None
    embedding = weights["embedding"]
    if network.embedding_rank <= network.width and not network.has_positions:
        return embedding, None
    return numpy.eye(network.width, dtype=numpy.int64), embedding


def _first_matrix(field: Modulo, form: GramForm, gram: Tensor) -> Tensor:
    """M of the first layer (points, rows, size) for Gram matrices (points, size, size)."""
    matrix = gram.new_zeros(len(gram), form.num_first_rows, form.sizes[0])
    for piece in form.first:
        rows = slice(piece.first, piece.first + piece.num_rows)
        reached = gram
        if piece.left is not None:
            reached = field.contract("ik,pkj->pij", torch.from_numpy(piece.left), gram)
        product = field.contract("pik,kj->pij", reached, torch.from_numpy(piece.inner[0]))
        matrix[:, rows] = field.add(matrix[:, rows], product)
    return matrix
