"""Measure a rank from samples that grow until they saturate, tile by tile, in bounded memory."""

import hashlib
import io
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy
from numpy.typing import NDArray

from rankscope.errors import CheckpointError, MeasurementError
from rankscope.files import make_folder, remove_leftovers, write_atomically
from rankscope.progress import Progress, Report
from rankscope.rank.elimination import Pivots, eliminate
from rankscope.rank.measured import MeasuredRank, MeasureOptions, Minor, Run, SplitFunction
from rankscope.rank.residues import Matrix, reduce_block
from rankscope.rank.tiles import (
    TILE_SIDE,
    MemoryBudget,
    Parts,
    Shape,
    Tile,
    TilesInMemory,
    TileStore,
    default_memory_limit,
    evaluate_tile,
    plan_tiles,
)
from rankscope.resumable import ResumableFolder
from rankscope.theorem import UpperBound
from rankscope.workers import Workers

# --- Random residues that anyone can draw again, on any machine and with any library version ------


_BYTES_EACH = 8


def draw_residues(
    seed: int, label: str, shape: tuple[int, ...], prime: int
) -> NDArray[numpy.int64]:
    """Draw integers in 0..p-1 from the seed, a label and the prime, by SHAKE-256.

    Each is a 64-bit word modulo p, so its distribution is even up to p / 2^64. Every prime has
    words of its own: residues of one word modulo several primes would not be independent, and the
    failure probabilities of measurements modulo different primes could not be multiplied.

    Example:
        >>> draw_residues(0, "weights/core", (2, 3), 101).shape
        (2, 3)
    """
    count = math.prod(shape)
    text = f"rankscope {seed} {prime} {label}".encode()
    words = numpy.frombuffer(hashlib.shake_256(text).digest(_BYTES_EACH * count), dtype="<u8")
    return numpy.asarray(words % numpy.uint64(prime)).astype(numpy.int64).reshape(shape)


# --- When a sample is large enough for its rank to be believed ------------------------------------


_FIRST_SIZE = 64
_JUMP = 3  # a target that is at most so many times larger is reached in one step
_SPARE_SAMPLES = 8


@dataclass(frozen=True)
class Saturation:
    """How the sample of one matrix grows, and when it may stop.

    Sample points drawn at random without end are enough as soon as there are more of them on
    each side than the rank. Of finitely many templates a part proves nothing: they are
    exhausted. Both stop where the rank meets a proved upper bound on a sample that is a little
    larger, so that every measurement would show a bound that is wrong.

    Args:
        num_points: how many points each side has, None without end.
        upper: a proved bound of the rank, or None.
    """

    num_points: tuple[int | None, int | None]
    upper: int | None

    @property
    def bound(self) -> int | None:
        """The best upper bound: the proved one, or the points of a side."""
        known = [number for number in (*self.num_points, self.upper) if number is not None]
        return min(known, default=None)

    @property
    def first_size(self) -> int:
        """Number of points to begin with."""
        return _FIRST_SIZE if self._test_size is None else min(_FIRST_SIZE, self._test_size)

    def shape(self, size: int) -> Shape:
        """Rows and columns of a sample of this size, if there are so many."""
        rows, columns = self.num_points
        return (
            size if rows is None else min(size, rows),
            size if columns is None else min(size, columns),
        )

    def is_enough(self, size: int, matrix_rank: int) -> bool:
        """Whether a sample of this size with this rank settles it."""
        if self.bound is not None and matrix_rank >= self.bound:
            return matrix_rank > self.bound or size >= self.final_size(0)
        taken = self.shape(size)
        return all(
            count > matrix_rank if most is None else count == most
            for count, most in zip(taken, self.num_points, strict=True)
        )

    def next_size(self, size: int) -> int:
        """The size after one that was not enough."""
        target = self._test_size
        if target is None or size >= target:
            target = max((most for most in self.num_points if most is not None), default=None)
        return target if target is not None and size < target <= _JUMP * size else 2 * size

    def final_size(self, size: int) -> int:
        """The size that is to be expected in the end, as far as anyone knows."""
        return size if self._test_size is None else max(size, self._test_size)

    def size_to_confirm(self, size: int, matrix_rank: int) -> int:
        """A size that was enough for this rank modulo one prime, and will be modulo another."""
        return size if self.num_points != (None, None) else matrix_rank + _SPARE_SAMPLES

    @property
    def _test_size(self) -> int | None:
        """A size at which a rank above the bound would be seen."""
        return None if self.bound is None else self.bound + _SPARE_SAMPLES


# --- Matrices of values that grow: only what is new is computed, tile by tile ---------------------


# Fewer are computed here: other processes take longer to start.
_WORTH_SENDING = 4


class GrowingMatrices:
    """The value matrix of a function, or one matrix for each of its graded parts.

    Args:
        function: gives the values.
        is_graded: whether the matrices are the graded parts.
        store: keeps tiles, and may know some already.
        workers: compute the tiles.
        report: called after every tile and every elimination.
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


# --- A folder that holds what an interrupted measurement has computed, so that it can go on -------


_MANIFEST = "manifest.json"
_DIGEST_BYTES = 32


class Checkpoint:
    """The folder of one measurement.

    Args:
        folder: created if it is not there.
        identity: plain data that says what is measured; a folder goes on with the same only.
        on_damage: called with the name of each file that has to be computed again.

    Raises:
        CheckpointError: if the folder belongs to something else, or is in use.
        OutputError: if it cannot be written.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, object], on_damage: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._on_damage = on_damage
        self._claim = ResumableFolder(folder, identity, what="measurement", manifest=_MANIFEST)

    def close(self) -> None:
        """Let others use the folder."""
        self._claim.close()

    def tiles(self, prime: int) -> "TilesInFolder":
        """Where the tiles of the run modulo a prime are kept."""
        folder = self.folder / f"prime {prime}"
        make_folder(folder)
        remove_leftovers(folder)
        return TilesInFolder(folder, self._on_damage)

    def finish(self, run: Run) -> None:
        """Record a run, and drop its tiles: nothing needs them any more."""
        _write_with_digest(self._run_path(run.prime), json.dumps(asdict(run)).encode())
        self._drop_tiles(run.prime)

    def finished(self, prime: int) -> Run | None:
        """The run modulo a prime, if it was recorded."""
        data = _read_with_digest(self._run_path(prime), self._on_damage)
        if data is None:
            return None
        self._drop_tiles(prime)  # if the process was killed before it had dropped them all
        plain = json.loads(data)
        minors = [
            Minor(item["grade"], tuple(item["rows"]), tuple(item["columns"]), item["upper"])
            for item in plain["minors"]
        ]
        return Run(plain["prime"], plain["seed"], tuple(minors), tuple(plain["samples"]))

    def _drop_tiles(self, prime: int) -> None:
        folder = self.folder / f"prime {prime}"
        if folder.is_dir():
            shutil.rmtree(folder)

    def _run_path(self, prime: int) -> Path:
        return self.folder / f"run {prime}.json.sealed"


class TilesInFolder(TileStore):
    """Keeps each tile as an .npy file of its own, so that memory holds none of them."""

    def __init__(self, folder: Path, on_damage: Callable[[str], None]) -> None:
        self._folder = folder
        self._on_damage = on_damage

    def has(self, tile: Tile) -> bool:
        return _read_with_digest(self._path(tile), self._on_damage) is not None

    def put(self, tile: Tile, parts: Parts) -> None:
        buffer = io.BytesIO()
        numpy.save(buffer, parts, allow_pickle=False)
        _write_with_digest(self._path(tile), buffer.getvalue())

    def get(self, tile: Tile) -> Parts:
        path = self._path(tile)
        data = _read_with_digest(path, self._on_damage)
        if data is None:
            raise CheckpointError(
                f"{str(path)!r} was removed or damaged while it was in use. Start again: "
                f"the other tiles are kept."
            )
        parts: Parts = numpy.load(io.BytesIO(data), allow_pickle=False)
        return parts

    def _path(self, tile: Tile) -> Path:
        return self._folder / f"{tile.name}.npy"


def _write_with_digest(path: Path, data: bytes) -> None:
    # Not waiting for the disk: the digest tells if the power failed before the data were there.
    write_atomically(path, data + hashlib.sha256(data).digest(), is_synced=False)


def _read_with_digest(path: Path, on_damage: Callable[[str], None]) -> bytes | None:
    """What was written, or None if there is nothing or it is damaged."""
    if not path.is_file():
        return None
    data = path.read_bytes()
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() == digest:
        return body
    on_damage(path.name)
    path.unlink()
    return None


# --- Measuring a separation rank: samples grow until the rank stops, primes follow until it is sure


FORMAT_VERSION = 1
# Larger matrices are replaced by those of the graded parts, where there are any.
LARGEST_UNGRADED = 4096
# Up to here a sample may grow to see whether a bound that does not fit in memory is far too high.
_PROBE = TILE_SIDE
_BYTES_PER_VALUE = 24  # while a tile is computed: int64, and as much again on the way, twice


@dataclass(frozen=True)
class MeasurementProblem:
    """A measurement problem: the function, its degree, its bounds and its identity.

    Args:
        split: gives the function modulo a prime.
        degree: of the output in everything that is drawn at random; 0 if nothing is.
        identity: plain data that tells this subject from others, for checkpoints.
        upper: a proved upper bound, or None.
        grade_uppers: proved upper bounds of the graded parts, or None.
        has_given_weights: whether the weights are fixed rather than drawn.
    """

    split: Callable[[int], SplitFunction]
    degree: int
    identity: Mapping[str, object]
    upper: UpperBound | None = None
    grade_uppers: tuple[int, ...] | None = None
    has_given_weights: bool = False

    @property
    def upper_value(self) -> int | None:
        """The upper bound as an integer, if there is one that can be written down."""
        return None if self.upper is None else self.upper.value


def measure(problem: MeasurementProblem, options: MeasureOptions) -> MeasuredRank:
    """Measure the separation rank of almost all weights.

    Raises:
        MeasurementError: if graded parts are asked for where there are none, or if the rank is
            larger than an upper bound.
        PrimeError: if a prime is not larger than the degree.
        TooLargeError: if the matrices would not fit in memory.
        CheckpointError: if the checkpoint belongs to something else.
    """
    start = time.perf_counter()
    primes = options.primes_for(problem.degree)
    is_graded = _is_graded(problem, problem.split(primes[0]), options)
    # Asked once: later, our own matrices take part of what is available.
    limit = options.memory_limit or default_memory_limit()
    with ExitStack() as stack:
        checkpoint = _checkpoint(problem, options, is_graded=is_graded)
        if checkpoint is not None:
            stack.callback(checkpoint.close)
        session = _Session(problem, options, checkpoint, is_graded, limit)
        runs: list[Run] = []
        for prime in primes:
            run = None if checkpoint is None else checkpoint.finished(prime)
            if run is None:
                run = session.run(prime, runs[-1] if runs else None)
                if checkpoint is not None:
                    checkpoint.finish(run)
            runs.append(run)
            measured = MeasuredRank(
                tuple(runs),
                problem.upper,
                problem.degree,
                time.perf_counter() - start,
                problem.has_given_weights,
            )
            if options.primes is None and measured.failure_probability <= options.max_failure:
                break
    return measured


def _is_graded(
    problem: MeasurementProblem, function: SplitFunction, options: MeasureOptions
) -> bool:
    if options.is_graded and function.num_grades == 1:
        raise MeasurementError(
            "A graded measurement needs a function that is a sum of several parts of different "
            "degrees in the right side, this one has 1 part. Leave is_graded out."
        )
    if options.is_graded is not None:
        return options.is_graded
    upper = problem.upper_value
    return function.num_grades > 1 and (upper is None or upper > LARGEST_UNGRADED)


def _checkpoint(
    problem: MeasurementProblem, options: MeasureOptions, *, is_graded: bool
) -> Checkpoint | None:
    if options.checkpoint is None:
        return None
    identity = {
        "format": "rankscope-measurement",
        "version": FORMAT_VERSION,
        "seed": options.seed,
        "primes": options.primes,
        "is_graded": is_graded,
        **problem.identity,
    }
    return Checkpoint(
        options.checkpoint,
        identity,
        lambda name: options.report(Progress(f"damaged, computed again: {name}", 0, 1)),
    )


@dataclass(frozen=True)
class _Session:
    """Everything that stays the same from prime to prime."""

    problem: MeasurementProblem
    options: MeasureOptions
    checkpoint: Checkpoint | None
    is_graded: bool
    memory_limit: int

    def run(self, prime: int, earlier: Run | None) -> Run:
        """Measure modulo one prime; an earlier run tells how large the samples must be."""
        function = self.problem.split(prime)
        matrices = GrowingMatrices(
            function,
            is_graded=self.is_graded,
            store=TilesInMemory() if self.checkpoint is None else self.checkpoint.tiles(prime),
            workers=self.options.workers,
            report=self.options.report,
        )
        rules = self._rules(function)
        sizes = _first_sizes(rules, earlier)
        minors: dict[int, Minor] = {}
        growing = list(range(len(rules)))
        while growing:
            self._require_memory(rules, sizes, growing, function)
            matrices.grow([rule.shape(size) for rule, size in zip(rules, sizes, strict=True)])
            for done, number in enumerate(growing):
                pivots = matrices.pivots(number)
                grade = number if self.is_graded else None
                minors[number] = Minor(grade, pivots.rows, pivots.columns, rules[number].bound)
                self.options.report(Progress("eliminations", done + 1, len(growing)))
            growing = [n for n in growing if not rules[n].is_enough(sizes[n], minors[n].size)]
            for number in growing:
                sizes[number] = rules[number].next_size(sizes[number])
        largest = max(matrices.shapes, key=lambda shape: shape[0] * shape[1])
        run = Run(prime, self.options.seed, tuple(minors[n] for n in sorted(minors)), largest)
        _require_bounds_hold(run, self.problem.upper_value)
        return run

    def _rules(self, function: SplitFunction) -> list[Saturation]:
        if not self.is_graded:
            return [Saturation(function.num_points, self.problem.upper_value)]
        uppers = self.problem.grade_uppers or (None,) * function.num_grades
        return [
            Saturation(function.num_points, upper)
            for _, upper in zip(range(function.num_grades), uppers, strict=True)
        ]

    def _require_memory(
        self,
        rules: list[Saturation],
        sizes: list[int],
        growing: list[int],
        function: SplitFunction,
    ) -> None:
        """Refuse early: beyond a first look, what the bounds allow has to fit."""
        expected = list(sizes)
        if max(sizes) > _PROBE:
            for number in growing:
                expected[number] = rules[number].final_size(sizes[number])
        shapes = [rule.shape(size) for rule, size in zip(rules, expected, strict=True)]
        tile = max(min(TILE_SIDE, rows) * min(TILE_SIDE, columns) for rows, columns in shapes)
        reserve = tile * len(rules) * _BYTES_PER_VALUE * self.options.workers.num_local
        budget = MemoryBudget(self.memory_limit, self.checkpoint is not None, reserve)
        budget.require(shapes, instead=self._advice(function, budget, shapes))

    def _advice(self, function: SplitFunction, budget: MemoryBudget, shapes: list[Shape]) -> str:
        """What may be done instead: only what would fit, as far as that is known."""
        parts = [(upper, upper) for upper in self.problem.grade_uppers or ()]
        ways = []
        if not self.is_graded and function.num_grades > 1 and budget.fits(parts):
            ways.append("measure the graded parts (is_graded=True)")
        if replace(budget, is_on_disk=True).fits(shapes):
            ways.append("give a checkpoint folder, which keeps the values out of memory")
        ways.append("make the network smaller")
        if self.problem.upper is not None:
            ways.append("raise memory_limit if you expect a rank far below the bound")
        ways.append("use the numeric mode, separation_rank(function, …)")
        return f"You may {', '.join(ways[:-1])}, or {ways[-1]}."


def _require_bounds_hold(run: Run, upper: int | None) -> None:
    """A rank above a bound refutes the bound; nobody shall be told that it is exact."""
    claims = [(minor.size, minor.upper) for minor in run.minors] + [(run.matrix_rank, upper)]
    for size, bound in claims:
        if bound is not None and size > bound:
            raise MeasurementError(
                f"The rank is at least {size:,} modulo {run.prime}, more than the upper bound "
                f"{bound:,}. The bound is wrong, or was proved for another function: please "
                f"report it."
            )


def _first_sizes(rules: list[Saturation], earlier: Run | None) -> list[int]:
    if earlier is None:
        return [rule.first_size for rule in rules]
    return [
        rule.size_to_confirm(max(earlier.samples), minor.size)
        for rule, minor in zip(rules, earlier.minors, strict=True)
    ]
