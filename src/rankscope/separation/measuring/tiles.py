"""Cutting growing matrices into tiles, each of which is computed once, anywhere."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy
from numpy.typing import NDArray

from rankscope.separation.measuring.memory import Shape
from rankscope.separation.measuring.split_function import SplitFunction

Parts = NDArray[numpy.int32]  # (matrices, rows, columns); residues below 2^31 fit

TILE_SIDE = 512


@dataclass(frozen=True)
class Tile:
    """The rectangle rows[0]..rows[1]-1 by columns[0]..columns[1]-1 of some of the matrices."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    matrices: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of its parts."""
        height, width = self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]
        return (len(self.matrices), height, width)

    @property
    def name(self) -> str:
        """A name that no other tile has, fit for a file."""
        chosen = sum(1 << matrix for matrix in self.matrices)
        spans = [f"{start}-{stop}" for start, stop in (self.rows, self.columns)]
        return f"rows {spans[0]} columns {spans[1]} matrices {chosen:x}"


def plan_tiles(
    known: Sequence[Shape], wanted: Sequence[Shape], side: int = TILE_SIDE
) -> list[Tile]:
    """Cover what is wanted of each matrix and not known yet, with tiles no longer than `side`.

    Every matrix is known on the corner of one shape and wanted on the corner of another. They
    share their sample points, so one tile serves all matrices that need it.

    Example:
        >>> for tile in plan_tiles([(2, 2), (2, 2)], [(2, 2), (3, 2)]):
        ...     print(tile.name)
        rows 2-3 columns 0-2 matrices 2
    """
    row_cuts = _cuts([shape[0] for shape in known], [shape[0] for shape in wanted], side)
    column_cuts = _cuts([shape[1] for shape in known], [shape[1] for shape in wanted], side)
    tiles = []
    for rows, columns in product(pairwise(row_cuts), pairwise(column_cuts)):
        needing = tuple(
            matrix
            for matrix, (old, new) in enumerate(zip(known, wanted, strict=True))
            if rows[0] < new[0]
            and columns[0] < new[1]
            and not (rows[1] <= old[0] and columns[1] <= old[1])
        )
        if needing:
            last_row = max(wanted[matrix][0] for matrix in needing)
            last_column = max(wanted[matrix][1] for matrix in needing)
            tiles.append(
                Tile(
                    (rows[0], min(rows[1], last_row)),
                    (columns[0], min(columns[1], last_column)),
                    needing,
                )
            )
    return tiles


def _cuts(known: Iterable[int], wanted: Iterable[int], side: int) -> list[int]:
    """Where an axis is cut: so that no tile is half known, and none is too long."""
    longest = max(wanted, default=0)
    return sorted({*known, *range(0, longest, side), longest})


def evaluate_tile(function: SplitFunction, tile: Tile, *, is_graded: bool) -> Parts:
    """The values of a tile; the matrices are the graded parts, or the function is the only one."""
    rows, columns = numpy.arange(*tile.rows), numpy.arange(*tile.columns)
    if not is_graded:
        return function.values(rows, columns)[None].astype(numpy.int32)
    return function.graded_values(rows, columns)[list(tile.matrices)].astype(numpy.int32)


class TileStore(ABC):
    """Keeps computed tiles."""

    @abstractmethod
    def has(self, tile: Tile) -> bool:
        """Whether `get` will give the parts of a tile."""

    @abstractmethod
    def put(self, tile: Tile, parts: Parts) -> None:
        """Keep the parts of a tile."""

    @abstractmethod
    def get(self, tile: Tile) -> Parts:
        """The parts that were kept."""


class TilesInMemory(TileStore):
    """Keeps tiles as long as the process lives."""

    def __init__(self) -> None:
        self._parts: dict[Tile, Parts] = {}

    def has(self, tile: Tile) -> bool:
        return tile in self._parts

    def put(self, tile: Tile, parts: Parts) -> None:
        self._parts[tile] = parts

    def get(self, tile: Tile) -> Parts:
        return self._parts[tile]
