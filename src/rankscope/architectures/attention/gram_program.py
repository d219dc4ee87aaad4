"""The program that computes the output from what the moments of the two sides add up to."""

import itertools

import numpy

from rankscope.architectures.attention.gram_form import GramForm, Piece
from rankscope.architectures.attention.kernels import Program
from rankscope.architectures.attention.programs import ProgramWriter
from rankscope.separation.measuring.split_function import Residues

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
            token = _applied(writer, matrix, token)
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
        found = gram[row]
    else:
        found = [writer.mix(piece.left[row - piece.first], line) for line in gram]
    for factor in piece.inner[:-1]:
        found = _applied(writer, gram, [writer.mix(column, found) for column in factor.T])
    return found


def _next_gram(writer: ProgramWriter, matrix: Matrix, gram: Matrix) -> Matrix:
    """M G Mᵗ."""
    half = [_applied(writer, gram, row) for row in matrix]
    size = len(matrix)
    return _symmetric({(i, j): writer.dot(half[i], matrix[j]) for i, j in _upper(size)}, size)


def _mapped_output(
    writer: ProgramWriter, last: tuple[Piece, ...], matrix: Matrix, moments: tuple[Matrix, Vector]
) -> int:
    """The output from the moments before the last but one layer, whose matrix is given."""
    gram, token = moments
    columns = [list(column) for column in zip(*matrix, strict=True)]
    mapped = _applied(writer, matrix, token)
    left: Vector = []
    right: Vector = []
    for piece in last:
        assert piece.left is not None  # the output's row
        vector = mapped
        for factor in piece.inner[:0:-1]:
            inside = _applied(writer, gram, _mixed_and_applied(writer, factor, vector, columns))
            vector = _applied(writer, matrix, inside)
        inside = _mixed_and_applied(writer, piece.inner[0], vector, columns)
        right += _applied(writer, gram, inside)
        left += [writer.mix(piece.left[0], column) for column in columns]
    return writer.dot(left, right)


def _output(writer: ProgramWriter, last: tuple[Piece, ...], gram: Matrix, token: Vector) -> int:
    """The output of the last layer from its own moments."""
    found: Vector = []
    for piece in last:
        vector = token
        for factor in piece.inner[::-1]:
            vector = _mixed_and_applied(writer, factor, vector, gram)
        found += vector
    rows = [piece.left[0] for piece in last if piece.left is not None]
    return writer.mix(numpy.concatenate(rows), found)


def _mixed_and_applied(
    writer: ProgramWriter,
    factor: Residues,
    vector: Vector,
    matrix: Matrix,
) -> Vector:
    return _applied(writer, matrix, [writer.mix(row, vector) for row in factor])


def _applied(writer: ProgramWriter, matrix: Matrix, vector: Vector) -> Vector:
    return [writer.dot(row, vector) for row in matrix]


def _upper(size: int) -> list[tuple[int, int]]:
    return list(itertools.combinations_with_replacement(range(size), 2))


def _symmetric(values: dict[tuple[int, int], int], size: int) -> Matrix:
    return [[values[min(i, j), max(i, j)] for j in range(size)] for i in range(size)]
