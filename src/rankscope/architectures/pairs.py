"""Sample points of the two sides, by number, and the interpolation that tells degrees apart."""

import math

import numpy
from numpy.typing import NDArray

from rankscope.errors import MatrixError, PrimeError
from rankscope.separation.measuring.draws import draw_residues
from rankscope.separation.measuring.split_function import Numbers, Residues


def drawn_points(
    seed: int, side: str, numbers: Numbers, shape: tuple[int, int], prime: int
) -> Residues:
    """The random sample points (len(numbers), *shape) of a side, `left` or `right`, by number."""
    drawn = [draw_residues(seed, f"{side}/{int(number)}", shape, prime) for number in numbers]
    return numpy.stack(drawn) if drawn else numpy.zeros((0, *shape), dtype=numpy.int64)


def unit_vector_points(numbers: Numbers, count: int, num_templates: int) -> Residues:
    """Combinations of unit vectors (len(numbers), count, num_templates), by number.

    Example:
        >>> unit_vector_points(numpy.arange(4), 2, 2).argmax(-1).tolist()
        [[0, 0], [1, 1], [0, 1], [1, 0]]
    """
    total = num_templates**count
    step = _coprime_near_golden_ratio(total)
    spread = [int(number) * step % total for number in numbers]
    digits = [[n // num_templates**place % num_templates for place in range(count)] for n in spread]
    chosen = numpy.array(digits, dtype=numpy.int64).reshape(len(numbers), count)
    return numpy.eye(num_templates, dtype=numpy.int64)[chosen]


def _coprime_near_golden_ratio(total: int) -> int:
    step = max(1, total * 6_180_339_887 // 10**10)
    while math.gcd(step, total) != 1:
        step += 1
    return step


def interpolation_modulo(
    degrees: tuple[int, ...], prime: int
) -> tuple[tuple[int, ...], NDArray[numpy.int64]]:
    """Scales t_j and a matrix that gives the parts of a sum of c_k t^degree_k from its values.

    Returns:
        The scales, and the matrix (grades, scales): part k is the sum over j of matrix[k, j]
        times the value at t_j.

    Example:
        >>> scales, matrix = interpolation_modulo((0, 2), 101)
        >>> [
        ...     [int(sum(row * numpy.array([t**d for t in scales]))) % 101 for d in (0, 2)]
        ...     for row in matrix
        ... ]
        [[1, 0], [0, 1]]

    Raises:
        PrimeError: if the prime is too small to tell the degrees apart.
    """
    # Imported here because compiling the exact kernels takes longer than most evaluations.
    from rankscope.separation.exact.modular import solve_modulo

    scales = tuple(range(1, len(degrees) + 1))
    powers = numpy.array([[pow(t, d, prime) for d in degrees] for t in scales], dtype=numpy.int64)
    identity = numpy.eye(len(degrees), dtype=numpy.int64)
    if degrees[-1] >= prime - 1:
        raise PrimeError(
            f"Separating degrees up to {degrees[-1]} needs a larger prime, got {prime}."
        )
    try:
        return scales, solve_modulo(powers, identity, prime)
    except MatrixError as error:
        raise PrimeError(
            f"Separating {len(degrees)} degrees needs a larger prime, got {prime}."
        ) from error
