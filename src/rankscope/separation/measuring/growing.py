"""Matrices of values that grow: only what is new is computed, tile by tile."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy

from rankscope.progress import Progress, Report
from rankscope.separation.exact.elimination import eliminate
from rankscope.separation.exact.kernels import Matrix, reduce_block
from rankscope.separation.exact.modular import Pivots
from rankscope.separation.measuring.memory import Shape
from rankscope.separation.measuring.split_function import SplitFunction
from rankscope.separation.measuring.tiles import Parts, Tile, TileStore, evaluate_tile, plan_tiles
from rankscope.workers import Workers

# Fewer are computed here: other processes take longer to start.
_WORTH_SENDING = 4


class GrowingMatrices:
    """The value matrix of a function, or one matrix for each of its graded parts.

    Args:
        function: gives the values.
        is_graded: whether the matrices are the graded parts.
        store: keeps tiles, and may know some already.
        workers: compute the tiles.
        report: told of every tile and every elimination.
    """

    def __init__(
        self,
        function: SplitFunction,
        *,
        is_graded: bool,
        store: TileStore,
        workers: Workers,
        report: Report,
    ) -> None:
        self._function = function
        self._store = store
        self._workers = workers
        self._report = report
        self._evaluate: Callable[[Tile], Parts] = partial(
            evaluate_tile, function, is_graded=is_graded
        )
        self._tiles: list[Tile] = []
        self.shapes: tuple[Shape, ...] = ((0, 0),) * (function.num_grades if is_graded else 1)

    def grow(self, shapes: Sequence[Shape]) -> None:
        """Compute what is missing for every matrix to be known on its shape."""
        tiles = plan_tiles(self.shapes, shapes)
        missing = [tile for tile in tiles if not self._store.has(tile)]
        what = f"values modulo {self._function.prime}"
        done = len(tiles) - len(missing)
        if done:
            self._report(Progress(what, done, len(tiles)))
        is_sent = len(missing) >= _WORTH_SENDING or self._workers.backend == "threading"
        workers = self._workers if is_sent else Workers("sequential")
        for number, parts in workers.run(self._evaluate, missing):
            self._store.put(missing[number], parts)
            done += 1
            self._report(Progress(what, done, len(tiles)))
        self._tiles.extend(tiles)
        self.shapes = tuple(shapes)

    def pivots(self, matrix: int) -> Pivots:
        """A largest minor of one matrix that is not 0 modulo the prime."""
        prime = self._function.prime
        echelon = eliminate(self._residues(matrix), prime)
        return Pivots(prime, echelon.pivot_rows, echelon.pivot_columns)

    def _residues(self, matrix: int) -> Matrix:
        num_rows, num_columns = self.shapes[matrix]
        residues = numpy.empty((num_rows, num_columns))
        for tile in self._tiles:
            if matrix not in tile.matrices:
                continue
            target = residues[slice(*tile.rows), slice(*tile.columns)]
            part = self._store.get(tile)[tile.matrices.index(matrix)]
            target[:] = part[: target.shape[0], : target.shape[1]]
        reduce_block(residues, (0, num_rows), 0, float(self._function.prime))
        return residues
