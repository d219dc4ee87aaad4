"""The rank of 2 x 2 x 2 tensors over the reals, decided by their orbit."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy
from numpy.typing import NDArray

from rankscope.errors import DecompositionError

SHAPE = (2, 2, 2)
_NUM_TERMS = 24  # the absolute values of the hyperdeterminant's coefficients add up to this


class Orbit(Enum):
    """The orbits of 2 x 2 x 2 tensors under changes of the three real bases, with their ranks."""

    ZERO = ("0", 0)
    PRODUCT = ("a product", 1)
    FIRST_APART = ("position 0 apart, a matrix of rank 2 of the others", 2)
    SECOND_APART = ("position 1 apart, a matrix of rank 2 of the others", 2)
    THIRD_APART = ("position 2 apart, a matrix of rank 2 of the others", 2)
    GHZ = ("GHZ, a sum of two real products", 2)
    COMPLEX = ("a sum of two complex products, which no real ones are", 3)
    W = ("W, a limit of sums of two products", 3)

    def __init__(self, description: str, rank: int) -> None:
        self.description = description
        self.rank = rank


def hyperdeterminant(entries: Sequence[Any] | NDArray[Any]) -> Any:
    """Cayley's, of eight numbers of any kind: the discriminant of det(x T_0 + y T_1).

    Example:
        >>> hyperdeterminant([1, 0, 0, 0, 0, 0, 0, 1])
        1
    """
    a, b, c, d, e, f, g, h = _eight(entries)
    first, last = a * d - b * c, e * h - f * g
    middle = a * h + d * e - b * g - c * f
    return middle * middle - 4 * first * last


def decide_orbit(entries: Sequence[Any] | NDArray[Any]) -> Orbit:
    """The orbit of a tensor of eight rational numbers; floats count as the fractions they are.

    Example:
        >>> decide_orbit([0, 1, 1, 0, 1, 0, 0, 0])
        <Orbit.W: ('W, a limit of sums of two products', 3)>

    Raises:
        DecompositionError: if there are not eight finite rational numbers.

    Reference:
        de Silva & Lim (2008), Tensor rank and the ill-posedness of the best low-rank approximation
        problem, arXiv:math/0607647, Table 7.1.
    """
    try:
        numbers = [Fraction(entry) for entry in _eight(entries)]
    except (TypeError, ValueError, OverflowError) as error:
        raise DecompositionError(f"decide_orbit needs rational numbers: {error}") from error
    tensor = numpy.array(numbers, dtype=object).reshape(SHAPE)
    are_parallel = [_is_parallel(numpy.moveaxis(tensor, axis, 0)) for axis in range(3)]
    if all(are_parallel):
        return Orbit.PRODUCT if any(numbers) else Orbit.ZERO
    if any(are_parallel):
        return (Orbit.FIRST_APART, Orbit.SECOND_APART, Orbit.THIRD_APART)[are_parallel.index(True)]
    value = hyperdeterminant(numbers)
    if value == 0:
        return Orbit.W
    return Orbit.GHZ if value > 0 else Orbit.COMPLEX


@dataclass(frozen=True)
class DecidedOrbit:
    """An orbit as the reason for a rank.

    Args:
        orbit: which one.
        value: the hyperdeterminant.
        error: 0 if the tensor is exact; otherwise the orbit is that of every tensor within this
            relative error.
    """

    orbit: Orbit
    value: Fraction | float
    error: float = 0.0

    @property
    def bound(self) -> int:
        """The rank over the reals."""
        return self.orbit.rank

    def __str__(self) -> str:
        shown = f"{self.value:.3g}" if isinstance(self.value, float) else str(self.value)
        valid = f", for every tensor within a relative error of {self.error:.0e}"
        return (
            f"over the reals its orbit is {self.orbit.description} (hyperdeterminant {shown})"
            f"{valid if self.error else ', exactly'}"
        )


def decide(array: NDArray[Any], relative_error: float) -> DecidedOrbit | None:
    """The orbit of integers, of whole numbers in floats, or of floats far from a border.

    None if the shape is another, or if changes within the error could lead to another orbit.
    """
    if array.shape != SHAPE:
        return None
    entries = array.ravel().tolist()
    if all(float(entry).is_integer() and abs(entry) <= 2**24 for entry in entries) or (
        array.dtype.kind in "iu"
    ):
        orbit = decide_orbit(entries)
        return DecidedOrbit(orbit, Fraction(hyperdeterminant([Fraction(e) for e in entries])))
    unit = array.astype(numpy.float64)
    unit = unit / numpy.abs(unit).max()
    unit /= numpy.linalg.norm(unit)
    value = float(hyperdeterminant(unit))
    # Every term is a product of four entries of at most 1, each of which may change by the error.
    if abs(value) <= _NUM_TERMS * ((1 + relative_error + 1e-14) ** 4 - 1):
        return None
    return DecidedOrbit(Orbit.GHZ if value > 0 else Orbit.COMPLEX, value, relative_error)


def _is_parallel(slices: NDArray[Any]) -> bool:
    """Whether two slices are multiples of one, or 0."""
    first, second = slices[0].ravel(), slices[1].ravel()
    return all(
        first[i] * second[j] == first[j] * second[i] for i in range(4) for j in range(i + 1, 4)
    )


def _eight(entries: Sequence[Any] | NDArray[Any]) -> list[Any]:
    numbers = list(entries.ravel()) if isinstance(entries, numpy.ndarray) else list(entries)
    if len(numbers) != 8:
        raise DecompositionError(f"A 2 x 2 x 2 tensor has eight entries, got {len(numbers)}.")
    return numbers
