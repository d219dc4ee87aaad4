r"""Attention as a function of moments: the Gram matrix of the tokens, and one token.

With G = XXᵗ a layer is x' = M(G) x and G' = M G Mᵗ, where M(G) = Σ_h W^O_h W^V_h G W^K_hᵗ W^Q_h
(or a chain of degree 2s + 1). Tokens are kept in coordinates z with x = P z that make M cheap:

- one head: P' = W^O W^V P leaves M = G B with B = Pᵗ W^Kᵗ W^Q P, and tokens of a low-rank
  embedding keep its few coordinates in all layers; chains likewise;
- heads that share the width: z' are the outputs of all heads, P' is W^O, and each head gives its
  own rows of M;
- more head features than the width: z' = x', and all heads add up.

G is additive over tokens, and so is M in the first layer if it is linear in G. The last Gram
matrix is never made: the output needs it on vectors only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy

from rankscope.separation.measuring.split_function import Residues


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
        """How many rows of M it adds to."""
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
    found = matrices[0].astype(object)
    for matrix in matrices[1:]:
        found = found @ matrix % prime
    return found.astype(numpy.int64)
