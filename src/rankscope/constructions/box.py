"""Boxes in d dimensions, and points in them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy

from rankscope.constructions.dense import DenseLayer, Reals, require_finite
from rankscope.errors import ConstructionError


@dataclass(frozen=True, eq=False)
class Box:
    """The points between `low` and `high`, coordinate by coordinate.

    Example:
        >>> Box.of([0.0, -1.0], [1.0, 1.0]).points(2).tolist()
        [[0.0, -1.0], [0.0, 1.0], [1.0, -1.0], [1.0, 1.0]]

    Raises:
        ConstructionError: if an end is not finite or the box is empty.
    """

    low: Reals
    high: Reals

    def __post_init__(self) -> None:
        require_finite("Box", low=self.low, high=self.high)
        if self.low.shape != self.high.shape or self.low.ndim != 1:
            raise ConstructionError(
                f"Box: low and high must be vectors of one length, got shapes {self.low.shape} "
                f"and {self.high.shape}."
            )
        wrong = numpy.flatnonzero(self.low >= self.high)
        if len(wrong):
            place = int(wrong[0])
            raise ConstructionError(
                f"Box: coordinate {place} goes from {self.low[place]} to {self.high[place]}; "
                "a box must go upwards."
            )

    @classmethod
    def of(cls, low: Sequence[float], high: Sequence[float]) -> "Box":
        """The box of plain numbers."""
        return cls(numpy.array(low, float), numpy.array(high, float))

    @classmethod
    def unit(cls, num_inputs: int) -> "Box":
        """All coordinates between zero and one."""
        return cls(numpy.zeros(num_inputs), numpy.ones(num_inputs))

    @property
    def num_inputs(self) -> int:
        """The dimension d."""
        return len(self.low)

    def lowest(self, layer: DenseLayer) -> Reals:
        """The least value of each output of an affine map on the box."""
        return numpy.asarray(
            numpy.minimum(layer.weight * self.low, layer.weight * self.high).sum(axis=1)
            + layer.bias
        )

    def points(self, per_side: int) -> Reals:
        """A grid that includes the corners."""
        sides = [
            numpy.linspace(low, high, per_side)
            for low, high in zip(self.low, self.high, strict=True)
        ]
        return numpy.stack(numpy.meshgrid(*sides, indexing="ij"), axis=-1).reshape(
            -1, self.num_inputs
        )

    def diagonal(self, count: int) -> Reals:
        """Points from the lowest corner to the highest."""
        return numpy.linspace(self.low, self.high, count)

    def cell_centres(self, grid: tuple[int, ...], chunk: int) -> Iterator[Reals]:
        """Centres of the cells of a grid, at most `chunk` at a time."""
        sides = (self.high - self.low) / numpy.array(grid)
        total = int(numpy.prod(grid))
        for start in range(0, total, chunk):
            numbers = numpy.arange(start, min(start + chunk, total))
            places = numpy.stack(numpy.unravel_index(numbers, grid), axis=-1)
            yield self.low + (places + 0.5) * sides
