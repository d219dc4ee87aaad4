"""What the spectrum of a random matrix looks like, to be drawn beside a real one."""

import numpy

from rankscope.auditing.random_law import RandomLaw
from rankscope.auditing.tensors import MatrixRow

NUM_CELLS = 2048


def random_sizes(matrix: MatrixRow) -> tuple[int, ...]:
    """Sizes that the law of chance needs: of a product of thin matrices also the inner one."""
    if matrix.num_values < min(matrix.shape):
        return (*matrix.shape, matrix.num_values)
    return matrix.shape


def random_quantiles(sizes: tuple[int, ...], count: int) -> list[float]:
    """Singular values that chance gives a large matrix, descending, over its random edge.

    They stand at the probabilities (k + 1/2) / `count`.

    Example:
        >>> values = random_quantiles((64, 256), 16)
        >>> len(values), all(value < 1 for value in values)
        (16, True)
    """
    law = RandomLaw(*sizes)
    values = numpy.linspace(0.0, 1.0, NUM_CELLS + 1)
    reached = law.cumulative(law.edge * values**2)
    wanted = 1 - (numpy.arange(count) + 0.5) / count
    found: list[float] = numpy.interp(wanted, reached, values).tolist()
    return found
