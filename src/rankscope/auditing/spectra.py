"""From singular values to the numbers in a row."""

import math
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from rankscope.auditing.random_law import RandomLaw
from rankscope.auditing.tensors import MatrixRow

Reals = NDArray[numpy.float64]

SHARES = (50, 90, 95, 99)
NUM_SHOWN = 256


@dataclass(frozen=True, eq=False)
class Spectrum:
    """All singular values of a matrix that can differ from zero.

    Args:
        shape: rows, columns; of a convolution those of its blocks.
        values: descending.
        rounding: values up to this one may be rounding alone.
        inner_size: of a product of two matrices, the size that is summed over; otherwise None.
    """

    shape: tuple[int, int]
    values: Reals
    rounding: float
    inner_size: int | None = None

    def to_row(self, name: str) -> MatrixRow:
        """All numbers of the row; of the zero matrix they are zero."""
        largest = float(self.values[0])
        # Scaling by the largest keeps the squares from overflowing.
        squares = numpy.square(self.values / largest) if largest > 0 else 0 * self.values
        entropy = _entropy(squares)
        edge, distance = self._against_chance(squares)
        places = numpy.linspace(0, len(squares) - 1, min(len(squares), NUM_SHOWN)).round()
        return MatrixRow(
            name=name,
            shape=self.shape,
            num_values=len(squares),
            singular_values=tuple(self.values[places.astype(int)].tolist()),
            largest=largest,
            frobenius=largest * math.sqrt(squares.sum()),
            numeric_rank=int((self.values > self.rounding).sum()),
            stable_rank=float(squares.sum()),
            effective_rank=math.exp(entropy) if largest > 0 else 0.0,
            entropy=_relative_entropy(entropy, squares),
            rank_at={str(share): _rank_at(squares, share) for share in SHARES},
            random_edge=largest * edge,
            outliers=int((numpy.sqrt(squares) > edge).sum()),
            random_distance=distance,
        )

    def _against_chance(self, squares: Reals) -> tuple[float, float]:
        """Edge of the random law, and the Kolmogorov-Smirnov distance from it."""
        mean = float(squares.mean())
        if mean == 0:
            return 0.0, 0.0
        inner = () if self.inner_size is None else (self.inner_size,)
        law = RandomLaw(*self.shape, *inner)
        expected = law.cumulative(squares[::-1] / mean)
        steps = numpy.arange(len(squares) + 1) / len(squares)
        above, below = steps[1:] - expected, expected - steps[:-1]
        return math.sqrt(mean * law.edge), float(max(above.max(), below.max()))


def _entropy(squares: Reals) -> float:
    """Of the shares of the squares, in nats."""
    present = squares[squares > 0]
    shares = present / present.sum()
    return max(0.0, -float(numpy.sum(shares * numpy.log(shares))))


def _relative_entropy(entropy: float, squares: Reals) -> float:
    if len(squares) == 1 or squares[0] == 0:
        return float(squares[0])  # one value is as even as it can be
    return min(1.0, entropy / math.log(len(squares)))


def _rank_at(squares: Reals, percent: int) -> int:
    """The smallest number of squares that hold this much of their sum."""
    held = numpy.cumsum(squares)
    if held[-1] == 0:
        return 0
    # Rounding in the sum must not cost one more.
    wanted = percent / 100 * held[-1] * (1 - 1e-12)
    return int(numpy.searchsorted(held, wanted)) + 1
