"""CP decompositions by damped Gauss-Newton, against alternating least squares in tensorly.

The first tensors are random tensor trains with equal inner cores and bond 3. Both sides start at
random, one start at a time, and are judged by the same number: the Frobenius norm of the residual
over that of the tensor, from the factors they return. A start counts as found at 1e-10; tensorly
judges itself by a difference of squared norms, which is blind below about 1e-8, and may stop there.
The last comparison is an easy one, where sweeps that are much cheaper than our steps come close.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy
from tensorly.decomposition import parafac

from rankscope.factorize import FitOptions, cp_rank, fit_cp
from rankscope.factorize.truncation import Factors, Reals, compose

NAME = "cp"
BOND = 3
NUM_STARTS = 8
FOUND = 1e-10
# (size, order, number of components, sweeps that tensorly may take)
CASES = ((2, 4, 4, 2000), (2, 5, 6, 2000), (2, 6, 8, 600), (3, 4, 9, 600))
INTERVALS = ((2, 4), (2, 5), (2, 6), (2, 7), (3, 4))


def run() -> Iterator[dict[str, object]]:
    for size, order, num_components, sweeps in CASES:
        row = _compare(_tensor_train(size, order), num_components, sweeps)
        yield {"case": f"n = {size}, d = {order}, R = {num_components}", **row}
    draw = numpy.random.default_rng(0)
    easy = compose(tuple(draw.standard_normal((20, 20)) for _ in range(3)))
    yield {"case": "random sum of 20 products, 20 x 20 x 20", **_compare(easy, 20, 600)}
    for size, order in INTERVALS:
        start = time.process_time()
        interval = cp_rank(_tensor_train(size, order))
        yield {
            "case": f"cp_rank, n = {size}, d = {order}",
            "lower": interval.lower,
            "upper": interval.upper,
            "failed": list(interval.failed),
            "seconds": round(time.process_time() - start, 2),
        }


def _tensor_train(size: int, order: int) -> Reals:
    draw = numpy.random.default_rng(order)
    tensor = draw.standard_normal((size, BOND))
    core = draw.standard_normal((BOND, size, BOND)) / numpy.sqrt(BOND)
    last = draw.standard_normal((BOND, size))
    for _ in range(order - 2):
        tensor = numpy.tensordot(tensor, core, 1)
    return numpy.tensordot(tensor, last, 1)


def _compare(tensor: Reals, num_components: int, sweeps: int) -> dict[str, object]:
    sides: dict[str, Callable[[int], Factors]] = {
        "ours": partial(_ours, tensor, num_components),
        "tensorly": partial(_theirs, tensor, num_components, sweeps),
    }
    errors: dict[str, list[float]] = {name: [] for name in sides}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for seed in range(NUM_STARTS):
        for name, solve in sides.items():
            start = time.process_time()
            factors = solve(seed)
            seconds[name].append(time.process_time() - start)
            residual = numpy.linalg.norm(compose(factors) - tensor)
            errors[name].append(float(residual / numpy.linalg.norm(tensor)))
    row: dict[str, object] = {}
    for name in sides:
        row[f"{name}_found"] = f"{sum(e <= FOUND for e in errors[name])}/{NUM_STARTS}"
        row[f"{name}_best_error"] = f"{min(errors[name]):.1e}"
        row[f"{name}_median_error"] = f"{statistics.median(errors[name]):.1e}"
        row[f"{name}_seconds"] = round(statistics.median(seconds[name]), 4)
    ratios = [b / a for a, b in zip(seconds["ours"], seconds["tensorly"], strict=True)]
    row["tensorly_over_ours"] = round(statistics.median(ratios), 2)
    return row


def _ours(tensor: Reals, num_components: int, seed: int) -> Factors:
    return fit_cp(tensor, num_components, FitOptions(num_restarts=1, seed=seed)).factors


def _theirs(tensor: Reals, num_components: int, sweeps: int, seed: int) -> Factors:
    decomposition = parafac(
        tensor,
        num_components,
        n_iter_max=sweeps,
        init="random",
        tol=1e-15,
        random_state=seed,
        linesearch=True,  # their best; without it no start comes near
    )
    weights, factors = decomposition
    return (factors[0] * weights, *factors[1:])
