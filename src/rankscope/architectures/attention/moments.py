"""Attention on pairs of sample points, by what the moments of the two sides add up to.

The output depends on the tokens of a side only through their Gram matrix, and on the output's
own token (see `gram_form`). So the moments of each point are computed once, and a pair costs
their sum and a short program.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from rankscope.architectures.arithmetic import Modulo
from rankscope.architectures.attention.gram_form import GramForm, gram_form
from rankscope.architectures.attention.gram_program import gram_program
from rankscope.architectures.attention.kernels import evaluate_pairs
from rankscope.architectures.attention.programs import ProgramWriter, balanced
from rankscope.architectures.attention.self_attention import SelfAttention
from rankscope.architectures.pairs import drawn_points, interpolation_modulo
from rankscope.separation.exact.primes import require_prime
from rankscope.separation.measuring.split_function import Numbers, Residues, SplitFunction
from rankscope.separation.partition import Partition


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
        found = self._evaluated(rows, columns, (1,), numpy.ones((1, 1), dtype=numpy.int64))
        return found.reshape(len(rows), len(columns))

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
        found = numpy.empty((len(interpolation), len(rows), len(columns)), dtype=numpy.int64)
        writer = ProgramWriter(len(scales), self.prime)
        mixing = writer.finish([writer.mix(line, writer.inputs) for line in interpolation])
        evaluate_pairs(
            self.program,
            mixing,
            balanced(left, self.prime),
            balanced(numpy.stack(scaled), self.prime),
            self.prime,
            found,
        )
        return found

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
    found = gram.new_zeros(len(gram), form.num_first_rows, form.sizes[0])
    for piece in form.first:
        rows = slice(piece.first, piece.first + piece.num_rows)
        reached = gram
        if piece.left is not None:
            reached = field.contract("ik,pkj->pij", torch.from_numpy(piece.left), gram)
        product = field.contract("pik,kj->pij", reached, torch.from_numpy(piece.inner[0]))
        found[:, rows] = field.add(found[:, rows], product)
    return found
