"""Boxes sorted into cells, so that asking what is near costs the same in a large picture."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from rankscope.diagrams.pictures.scene import Box

CELL = 96.0
Thing = TypeVar("Thing")


class Buckets(Generic[Thing]):
    """A growing collection of things with boxes."""

    def __init__(self) -> None:
        self._things: list[tuple[Box, Thing]] = []
        self._cells: dict[tuple[int, int], list[int]] = {}

    def add(self, box: Box, thing: Thing) -> None:
        """Remember a thing."""
        for cell in _cells(box):
            self._cells.setdefault(cell, []).append(len(self._things))
        self._things.append((box, thing))

    def near(self, box: Box) -> Iterator[tuple[Box, Thing]]:
        """Things whose boxes meet a box, in the order they were added."""
        places = {place for cell in _cells(box) for place in self._cells.get(cell, ())}
        for place in sorted(places):
            other, thing = self._things[place]
            if (
                box[0] <= other[2]
                and other[0] <= box[2]
                and box[1] <= other[3]
                and other[1] <= box[3]
            ):
                yield other, thing


def _cells(box: Box) -> Iterator[tuple[int, int]]:
    for column in range(int(box[0] // CELL), int(box[2] // CELL) + 1):
        for row in range(int(box[1] // CELL), int(box[3] // CELL) + 1):
            yield (column, row)
