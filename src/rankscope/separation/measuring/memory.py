"""What a measurement will need of memory, said before it begins."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.errors import TooLargeError, readable

Shape = tuple[int, int]

_MEBIBYTE = 2**20
_USED_SHARE = 0.8
_TILE_BYTES = 4  # a residue below 2^31
# The eliminated matrix is float64; the rest are rows on their way and inverses of panels.
_ELIMINATION_BYTES = 10


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
            if self.fits(_clipped(shapes, middle)):
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
        fits = _clipped(shapes, side)
        which = "a matrix" if len(shapes) == 1 else f"{len(shapes)} blocks, the largest"
        raise TooLargeError(
            what=f"Measuring on {which} of {readable(rows)} x {readable(columns)} "
            f"({readable(-(-needed // _MEBIBYTE))} MiB with the elimination)",
            entries=sum(height * width for height, width in shapes),
            limit=sum(height * width for height, width in fits),
            instead=f"In the {self.limit // _MEBIBYTE:,} MiB allowed, {min(rows, side):,} x "
            f"{min(columns, side):,} is the largest that fits. {instead}",
        )


def _clipped(shapes: Sequence[Shape], side: int) -> list[Shape]:
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
