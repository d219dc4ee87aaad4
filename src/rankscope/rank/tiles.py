"""Samples in tiles: how large they may be, and how much memory a measurement needs."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

import numpy
from numpy.typing import NDArray

from rankscope.errors import TooLargeError, readable
from rankscope.rank.measured import SplitFunction

# --- What a measurement will need of memory, said before it begins --------------------------------


Shape = tuple[int, int]

_MEBIBYTE = 2**20
_USED_SHARE = 0.8
_TILE_BYTES = 4  # a residue below 2^31
# The eliminated matrix is float64; the rest are rows on their way and inverses of panels.
_ELIMINATION_BYTES = 10
# Rows x columns x rank: 16,384 of each in 171 seconds (benchmarks/results/modular_rank.jsonl).
_ELIMINATED_IN_AN_HOUR = 16_384**3 * 3600 // 171


@dataclass(frozen=True)
class MemoryBudget:
    """Memory that matrices may take.

    Args:
        limit: bytes.
        is_on_disk: whether only the matrix that is being eliminated is held in memory.
        reserve: bytes for what else is being computed meanwhile.
    """

    limit: int
    is_on_disk: bool = False
    reserve: int = 0

    def needed(self, shapes: Sequence[Shape]) -> int:
        """Bytes for matrices of these shapes, eliminated one after the other."""
        areas = [rows * columns for rows, columns in shapes]
        stored = 0 if self.is_on_disk else _TILE_BYTES * sum(areas)
        return stored + _ELIMINATION_BYTES * max(areas, default=0) + self.reserve

    def fits(self, shapes: Sequence[Shape]) -> bool:
        """Whether that is within the limit."""
        return self.needed(shapes) <= self.limit

    def largest_side(self, shapes: Sequence[Shape]) -> int:
        """The largest n so that everything fits if no side is longer than n."""
        low, high = 0, max((max(shape) for shape in shapes), default=0)
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits(_clip_shapes(shapes, middle)):
                low = middle
            else:
                high = middle - 1
        return low

    def require(self, shapes: Sequence[Shape], *, instead: str) -> None:
        """Refuse matrices that do not fit, and name the largest that do.

        Args:
            shapes: of all matrices that are held at the same time.
            instead: what else the caller may do.

        Raises:
            TooLargeError: if they do not fit.
        """
        if self.fits(shapes):
            return
        needed = self.needed(shapes)
        side = self.largest_side(shapes)
        rows, columns = max(shapes, key=lambda shape: shape[0] * shape[1])
        fits = _clip_shapes(shapes, side)
        which = "a matrix" if len(shapes) == 1 else f"{len(shapes)} blocks, the largest"
        raise TooLargeError(
            what=f"Measuring on {which} of {readable(rows)} x {readable(columns)} "
            f"({readable(-(-needed // _MEBIBYTE))} MiB with the elimination, estimated to take "
            f"{readable(_elimination_hours(shapes))} hours of one core)",
            entries=sum(height * width for height, width in shapes),
            limit=sum(height * width for height, width in fits),
            instead=f"In the {self.limit // _MEBIBYTE:,} MiB allowed, {min(rows, side):,} x "
            f"{min(columns, side):,} is the largest that fits. {instead}",
        )


def _elimination_hours(shapes: Sequence[Shape]) -> int:
    work = sum(rows * columns * min(rows, columns) for rows, columns in shapes)
    return -(-work // _ELIMINATED_IN_AN_HOUR)


def _clip_shapes(shapes: Sequence[Shape], side: int) -> list[Shape]:
    return [(min(rows, side), min(columns, side)) for rows, columns in shapes]


def default_memory_limit() -> int:
    """Four fifths of the memory that is available now, in bytes."""
    return int(_USED_SHARE * available_memory())


def available_memory(
    *, information: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")
) -> int:
    """Bytes that can be used without swapping.

    Linux says so itself, and a container may be allowed less (control groups, version 2). Other
    systems tell how much is built in, of which half is taken as available; where even that is
    not told (Windows), 4 GiB are assumed.
    """
    if information.is_file():
        lines = information.read_text(encoding="ascii").splitlines()
        kibibytes = {name: rest.split()[0] for name, _, rest in (ln.partition(":") for ln in lines)}
        available = 1024 * int(kibibytes["MemAvailable"])
        most = group / "memory.max"
        if most.is_file() and (allowed := most.read_text(encoding="ascii").strip()) != "max":
            used = int((group / "memory.current").read_text(encoding="ascii"))
            available = min(available, max(0, int(allowed) - used))
        return available
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 4096 * _MEBIBYTE


# --- Cutting growing matrices into tiles, each of which is computed once, anywhere ----------------


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
