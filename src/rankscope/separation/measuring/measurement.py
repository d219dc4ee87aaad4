"""Measuring a separation rank: samples grow until the rank stops, primes follow until it is sure.

The rank of any matrix of values modulo a prime is at most the separation rank of almost all
weights (docs/proofs.md). It is reached once the sample is saturated, unless a minor vanishes by
accident, which is improbable by Schwartz and Zippel and more so with every further prime.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rankscope.errors import MeasurementError
from rankscope.progress import Progress
from rankscope.separation.measuring.checkpoint import Checkpoint
from rankscope.separation.measuring.growing import GrowingMatrices
from rankscope.separation.measuring.measured import MeasuredRank, Minor, Run
from rankscope.separation.measuring.memory import MemoryBudget, Shape, default_memory_limit
from rankscope.separation.measuring.options import MeasureOptions
from rankscope.separation.measuring.saturation import Saturation
from rankscope.separation.measuring.split_function import SplitFunction
from rankscope.separation.measuring.tiles import TILE_SIDE, TilesInMemory
from rankscope.theorem import UpperBound

FORMAT_VERSION = 1
# Larger matrices are replaced by those of the graded parts, where there are any.
_LARGEST_UNGRADED = 4096
# Up to here a sample may grow to see whether a bound that does not fit in memory is far too high.
_PROBE = TILE_SIDE
_BYTES_PER_VALUE = 24  # while a tile is computed: int64, and as much again on the way, twice


@dataclass(frozen=True)
class Subject:
    """What is measured.

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


def measure(subject: Subject, options: MeasureOptions) -> MeasuredRank:
    """Measure the separation rank of almost all weights.

    Raises:
        MeasurementError: if graded parts are asked for where there are none, or if the rank is
            larger than an upper bound.
        PrimeError: if a prime is not larger than the degree.
        TooLargeError: if the matrices would not fit in memory.
        CheckpointError: if the checkpoint belongs to something else.
    """
    start = time.perf_counter()
    primes = options.primes_for(subject.degree)
    is_graded = _is_graded(subject, subject.split(primes[0]), options)
    # Asked once: later, our own matrices take part of what is available.
    limit = options.memory_limit or default_memory_limit()
    with ExitStack() as stack:
        checkpoint = _checkpoint(subject, options, is_graded=is_graded)
        if checkpoint is not None:
            stack.callback(checkpoint.close)
        session = _Session(subject, options, checkpoint, is_graded, limit)
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
                subject.upper,
                subject.degree,
                time.perf_counter() - start,
                subject.has_given_weights,
            )
            if options.primes is None and measured.failure_probability <= options.max_failure:
                break
    return measured


def _is_graded(subject: Subject, function: SplitFunction, options: MeasureOptions) -> bool:
    if options.is_graded and function.num_grades == 1:
        raise MeasurementError(
            "A graded measurement needs a function that is a sum of several parts of different "
            "degrees in the right side, this one has 1 part. Leave is_graded out."
        )
    if options.is_graded is not None:
        return options.is_graded
    upper = subject.upper_value
    return function.num_grades > 1 and (upper is None or upper > _LARGEST_UNGRADED)


def _checkpoint(subject: Subject, options: MeasureOptions, *, is_graded: bool) -> Checkpoint | None:
    if options.checkpoint is None:
        return None
    identity = {
        "format": "rankscope-measurement",
        "version": FORMAT_VERSION,
        "seed": options.seed,
        "primes": options.primes,
        "is_graded": is_graded,
        **subject.identity,
    }
    return Checkpoint(
        options.checkpoint,
        identity,
        lambda name: options.report(Progress(f"damaged, computed again: {name}", 0, 1)),
    )


@dataclass(frozen=True)
class _Session:
    """Everything that stays the same from prime to prime."""

    subject: Subject
    options: MeasureOptions
    checkpoint: Checkpoint | None
    is_graded: bool
    memory_limit: int

    def run(self, prime: int, earlier: Run | None) -> Run:
        """Measure modulo one prime; an earlier run tells how large the samples must be."""
        function = self.subject.split(prime)
        matrices = GrowingMatrices(
            function,
            is_graded=self.is_graded,
            store=TilesInMemory() if self.checkpoint is None else self.checkpoint.tiles(prime),
            workers=self.options.workers,
            report=self.options.report,
        )
        rules = self._rules(function)
        sizes = _first_sizes(rules, earlier)
        found: dict[int, Minor] = {}
        growing = list(range(len(rules)))
        while growing:
            self._require_memory(rules, sizes, growing, function)
            matrices.grow([rule.shape(size) for rule, size in zip(rules, sizes, strict=True)])
            for done, number in enumerate(growing):
                pivots = matrices.pivots(number)
                grade = number if self.is_graded else None
                found[number] = Minor(grade, pivots.rows, pivots.columns, rules[number].bound)
                self.options.report(Progress("eliminations", done + 1, len(growing)))
            growing = [n for n in growing if not rules[n].is_enough(sizes[n], found[n].size)]
            for number in growing:
                sizes[number] = rules[number].next_size(sizes[number])
        largest = max(matrices.shapes, key=lambda shape: shape[0] * shape[1])
        run = Run(prime, self.options.seed, tuple(found[n] for n in sorted(found)), largest)
        _require_bounds_hold(run, self.subject.upper_value)
        return run

    def _rules(self, function: SplitFunction) -> list[Saturation]:
        if not self.is_graded:
            return [Saturation(function.num_points, self.subject.upper_value)]
        uppers = self.subject.grade_uppers or (None,) * function.num_grades
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
        parts = [(upper, upper) for upper in self.subject.grade_uppers or ()]
        ways = []
        if not self.is_graded and function.num_grades > 1 and budget.fits(parts):
            ways.append("measure the graded parts (is_graded=True)")
        if replace(budget, is_on_disk=True).fits(shapes):
            ways.append("give a checkpoint folder, which keeps the values out of memory")
        ways.append("make the network smaller")
        if self.subject.upper is not None:
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
