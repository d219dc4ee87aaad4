"""A network's output as a function of two groups of inputs, modulo a prime.

The measurement, the certificates and the scale-out know networks only through `SplitFunction`:
a matrix with numbered rows and columns, any part of which can be computed anywhere. Objects are
picklable and small, so that a tile can be computed by another process or machine.
"""

from abc import ABC, abstractmethod

import numpy
from numpy.typing import NDArray

Residues = NDArray[numpy.int64]  # in 0..p-1
Numbers = NDArray[numpy.int64]  # of sample points, from 0


class SplitFunction(ABC):
    """The values y(a_p, b_q) modulo a prime, by the numbers p and q of their sample points.

    Attributes:
        prime: all values are residues modulo it.
        num_points: how many points each side has: (rows, columns). None where points are drawn
            from the seed without end; a number where the inputs are finitely many templates.
        num_grades: the output is a sum of this many parts that are homogeneous in the right side;
            1 where nothing is gained by separating them.
    """

    prime: int
    num_points: tuple[int | None, int | None] = (None, None)
    num_grades: int = 1

    @abstractmethod
    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        """The matrix (len(rows), len(columns)) of outputs."""

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        """The parts (num_grades, len(rows), len(columns)), which add up to the outputs."""
        return self.values(rows, columns)[None]
