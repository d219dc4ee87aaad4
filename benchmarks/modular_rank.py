"""Exact rank modulo a prime, against FLINT, the float64 rank by singular values, and plain LU.

Everything starts from the same int64 NumPy array and runs on one thread. LU in float64 is the
peer of the same arithmetic without exactness; `limit` is the time that the products alone would
take at the speed of a large float64 matrix product (2/3 n^3 multiply-adds, or their share at low
rank). FLINT's conversion goes through Python lists, the only way in that it documents.

Both sides are called once more just before each timed call. On a virtual machine that hands free
memory back to its host, the first touch of it after a pause costs 3 ms a megabyte (measured: 0.35
s of kernel time at n = 4096), whoever asks for it; `first_call_over_warm` shows what it costs us.
"""

import math
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import flint
import numpy
import torch
from numpy.typing import NDArray

from benchmarks.timing import seconds, time_ratio
from rankscope.rank.elimination import rank_modulo

NAME = "modular_rank"
SIZES = (1024, 2048, 4096)
REPEATS = {1024: 7, 2048: 5, 4096: 3}
PRIMES = (8388593, 16777213)
LARGE_PRIME = 2147483647
MEMORY_SIZE = 16384

Integers = NDArray[numpy.int64]


def run() -> Iterator[dict[str, object]]:
    """Check that all agree on the rank, then time them in pairs."""
    torch.set_num_threads(1)
    draw = numpy.random.default_rng(0)
    for size in SIZES:
        for prime in PRIMES:
            matrix = draw.integers(0, prime, (size, size))
            yield {"case": f"full rank, n = {size}, p = {prime}", **_against_all(matrix, prime)}
        yield {"case": f"rank n/8, n = {size}", **_against_flint(_low_rank(draw, size), PRIMES[0])}
        large = draw.integers(0, LARGE_PRIME, (size, size))
        yield {
            "case": f"full rank, n = {size}, p = {LARGE_PRIME}",
            **_against_flint(large, LARGE_PRIME),
        }
    for matrix, rank in ((_known_rank(draw), 512), (_full_rank(draw), MEMORY_SIZE)):
        yield {"case": f"memory, n = {MEMORY_SIZE}, rank {rank}", **_memory(matrix, rank)}


def _low_rank(draw: numpy.random.Generator, size: int) -> Integers:
    # Small entries, so that the product over the integers fits and has the same rank modulo p.
    left, right = draw.integers(0, 999, (size, size // 8)), draw.integers(0, 999, (size // 8, size))
    product: Integers = (left.astype(float) @ right.astype(float)).astype(numpy.int64)
    return product


def _to_flint(matrix: Integers, prime: int) -> flint.nmod_mat:
    return flint.nmod_mat(len(matrix), matrix.shape[1], matrix.ravel().tolist(), prime)


def _against_flint(matrix: Integers, prime: int) -> dict[str, object]:
    mine = partial(rank_modulo, matrix, prime)
    theirs = _to_flint(matrix, prime)
    rank = mine()
    assert rank == theirs.rank(), "the ranks differ"
    repeats = REPEATS[len(matrix)]
    first_call = seconds(mine)
    ratio, median = _ratio_when_warm(mine, theirs.rank, repeats=repeats)
    conversion = partial(_to_flint, matrix, prime)
    conversion_ratio, _ = _ratio_when_warm(mine, conversion, repeats=repeats)
    limit = _limit(len(matrix), rank)
    return {
        "rank": rank,
        "seconds": round(median, 4),
        "first_call_over_warm": round(first_call / median, 2),
        "flint_over_ours": round(1 / ratio, 2),
        "flint_with_conversion_over_ours": round(1 / ratio + 1 / conversion_ratio, 2),
        "share_of_multiply_limit": round(limit / median, 2),
        "load": round(os.getloadavg()[0], 1),
    }


def _against_all(matrix: Integers, prime: int) -> dict[str, object]:
    mine = partial(rank_modulo, matrix, prime)
    as_float = torch.from_numpy(matrix).double()
    repeats = REPEATS[len(matrix)]
    row = _against_flint(matrix, prime)
    lu_ratio, _ = _ratio_when_warm(mine, partial(torch.linalg.lu_factor, as_float), repeats=repeats)
    singular = partial(numpy.linalg.matrix_rank, as_float.numpy())
    svd_ratio, _ = _ratio_when_warm(mine, singular, repeats=1)
    return {
        **row,
        "ours_over_lu_factor": round(lu_ratio, 2),
        "matrix_rank_over_ours": round(1 / svd_ratio, 2),
    }


_ratio_when_warm = partial(time_ratio, warm=0, warm_each=True)


def _limit(size: int, rank: int) -> float:
    """The time of the elimination's multiply-adds at the rate of a large product."""
    side = min(size, 2048)
    factor = torch.rand(side, side, dtype=torch.float64)
    rate = 2 * side**3 / min(seconds(partial(torch.mm, factor, factor)) for _ in range(3))
    # Step k updates (n - k)^2 entries, for k below the rank.
    updates = math.fsum((size - step) ** 2 for step in range(rank))
    return 2 * updates / rate


def _known_rank(draw: numpy.random.Generator) -> Integers:
    matrix = numpy.empty((MEMORY_SIZE, MEMORY_SIZE), dtype=numpy.int64)
    right = draw.integers(-99, 99, (512, MEMORY_SIZE)).astype(float)
    for start in range(0, MEMORY_SIZE, 512):
        matrix[start : start + 512] = draw.integers(-99, 99, (512, 512)).astype(float) @ right
    return matrix


def _full_rank(draw: numpy.random.Generator) -> Integers:
    """An upper triangular matrix with ones on the diagonal, columns exchanged: never singular."""
    matrix = numpy.zeros((MEMORY_SIZE, MEMORY_SIZE), dtype=numpy.int64)
    for row in range(MEMORY_SIZE):
        matrix[row, row:] = draw.integers(0, PRIMES[0], MEMORY_SIZE - row)
        matrix[row, row] = 1

    return matrix[:, draw.permutation(MEMORY_SIZE)]


def _memory(matrix: Integers, rank: int) -> dict[str, object]:
    """The largest resident memory during the rank, over that of the float64 matrix."""
    base = _resident() - matrix.nbytes
    largest, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            largest[0] = max(largest[0], _resident())
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start_time = time.perf_counter()
    measured = rank_modulo(matrix, PRIMES[0])
    elapsed = time.perf_counter() - start_time
    stop.set()
    watcher.join()
    assert measured == rank, measured
    return {
        "rank": measured,
        "seconds": round(elapsed, 2),
        "memory_over_matrix": round((largest[0] - base) / matrix.nbytes, 2),
    }


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
