"""Any polynomial network on pairs of sample points, by its defining equations."""

import math
from collections.abc import Mapping

import numpy
from numpy.typing import NDArray

from rankscope.architectures.network import PolynomialNetwork
from rankscope.errors import PrimeError
from rankscope.separation.measuring.draws import draw_residues
from rankscope.separation.measuring.split_function import Numbers, Residues, SplitFunction
from rankscope.separation.partition import Partition

_PAIRS_AT_ONCE = 1 << 16


class PairwiseFunction(SplitFunction):
    """Evaluates the network once for each pair and each grade.

    Points of a side are drawn from the seed by their number. With templates they are the
    combinations of unit vectors; number n has the digits of (n · step) modulo their count, so
    that any run of numbers is spread over all combinations.
    """

    def __init__(
        self,
        network: PolynomialNetwork,
        partition: Partition,
        *,
        seed: int,
        prime: int,
        weights: Mapping[str, Residues],
    ) -> None:
        self.network = network
        self.partition = partition
        self.seed = seed
        self.prime = prime
        self.weights = dict(weights)
        self.degrees = network.grade_degrees(partition)
        self.num_grades = len(self.degrees)
        if network.num_templates is not None:
            self.num_points = (
                network.num_templates ** len(partition.left),
                network.num_templates ** len(partition.right),
            )
        if self.num_grades > 1:
            self.scales, self.interpolation = interpolation_modulo(self.degrees, prime)

    def values(self, rows: Numbers, columns: Numbers) -> Residues:
        return self._scaled_values(rows, columns, 1)

    def graded_values(self, rows: Numbers, columns: Numbers) -> Residues:
        if self.num_grades == 1:
            return self.values(rows, columns)[None]
        parts = numpy.zeros((self.num_grades, len(rows), len(columns)), dtype=numpy.int64)
        for scale, weights in zip(self.scales, self.interpolation.T, strict=True):
            values = self._scaled_values(rows, columns, scale)
            for grade, weight in enumerate(weights):
                parts[grade] = (parts[grade] + int(weight) * values) % self.prime
        return parts

    def points(self, side: str, numbers: Numbers) -> Residues:
        """The sample points (len(numbers), positions of the side, input_size)."""
        count = len(self.partition.left if side == "left" else self.partition.right)
        network = self.network
        if network.num_templates is not None:
            return unit_vector_points(numbers, count, network.num_templates)
        return drawn_points(self.seed, side, numbers, (count, network.input_size), self.prime)

    def _scaled_values(self, rows: Numbers, columns: Numbers, scale: int) -> Residues:
        left = self.points("left", rows)
        right = self.points("right", columns) * scale % self.prime
        found = numpy.empty((len(rows), len(columns)), dtype=numpy.int64)
        step = max(1, _PAIRS_AT_ONCE // max(1, len(columns)))
        for start in range(0, len(rows), step):
            part = left[start : start + step]
            found[start : start + step] = self.paired(part, right)
        return found

    def paired(self, left: Residues, right: Residues) -> Residues:
        """The matrix of outputs for points of both sides; a faster function overrides only this."""
        shape = (len(left), len(right), self.network.num_positions, self.network.input_size)
        inputs = numpy.empty(shape, dtype=numpy.int64)
        inputs[:, :, self.partition.left] = left[:, None]
        inputs[:, :, self.partition.right] = right[None, :]
        flat = inputs.reshape(-1, *shape[2:])
        outputs = self.network.evaluate_modulo(self.weights, flat, self.prime)
        return outputs.reshape(shape[:2])


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
    from rankscope.errors import MatrixError
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
