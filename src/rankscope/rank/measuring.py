"""Measuring the separation rank of a polynomial network exactly."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor, nn

from rankscope.budget import readable_seconds
from rankscope.errors import BudgetError, UnsupportedModuleError, readable
from rankscope.progress import Progress, ignore
from rankscope.rank.defining_equations import evaluation_cost
from rankscope.rank.measured import DEFAULT_OPTIONS, MeasuredRank, MeasureOptions, SplitFunction
from rankscope.rank.measurement import LARGEST_UNGRADED, MeasurementProblem, measure
from rankscope.rank.networks.given_weights import digest, require_weights_of, weight_residues
from rankscope.rank.networks.network import PolynomialNetwork
from rankscope.rank.partition import Partition
from rankscope.rank.tiles import TILE_SIDE, MemoryBudget, default_memory_limit
from rankscope.workers import Workers

# Measured, generously: a product of a program, what else a value costs, and writing the program.
_SECONDS_EACH_PRODUCT, _SECONDS_EACH_VALUE, _SECONDS_WRITING = 1e-10, 1e-7, 7e-5
# For a first sample, unless told; less if what the bound allows would not fit in memory anyway.
_SECONDS_ALLOWED, _SECONDS_IF_LARGE = 3600.0, 10.0


def measure_rank(
    network: nn.Module,
    partition: Partition,
    options: MeasureOptions = DEFAULT_OPTIONS,
    *,
    weights: Mapping[str, Tensor] | None = None,
) -> MeasuredRank:
    """Measure the separation rank of a network over a split of its inputs.

    The answer is a certified lower bound for almost all weights, together with a proved upper
    bound or the probability that the rank is larger.

    Args:
        network: a `PolynomialNetwork`; other modules have no exact rank.
        partition: must cover all positions.
        options: seed, primes, memory, checkpoint, workers.
        weights: measure at these instead of random ones, for instance the trained
            `dict(network.named_parameters())`; they are taken exactly, without rounding.

    Raises:
        UnsupportedModuleError: if the module is not a polynomial network.
        PartitionError: if the partition does not cover the positions.
        MeasurementError: if the weights do not fit the network, or graded parts are asked for
            where there are none.
        PrimeError: if a prime is not larger than the degree.
        BudgetError: if already a first sample is estimated to take longer than `max_seconds`.
        TooLargeError: if it would not fit in memory.
        CheckpointError: if the checkpoint belongs to something else.
    """
    polynomial = _require_polynomial(network)
    polynomial.require_covered(partition)
    upper = polynomial.upper_bound(partition)
    grade_uppers = polynomial.grade_upper_bounds(partition)
    _require_first_sample(
        polynomial, partition, options, None if upper is None else upper.value, grade_uppers
    )
    if weights is not None:
        require_weights_of(polynomial, weights)
    problem = MeasurementProblem(
        split=partial(_split, polynomial, partition, options.seed, weights),
        degree=_drawn_degree(polynomial, has_given_weights=weights is not None),
        identity={
            "family": polynomial.family,
            "settings": polynomial.settings,
            "left": partition.left,
            "right": partition.right,
            "weights": None if weights is None else digest(weights),
        },
        upper=upper,
        grade_uppers=grade_uppers,
        has_given_weights=weights is not None,
    )
    return measure(problem, options)


def measure_ranks(
    questions: Sequence[tuple[nn.Module, Partition]],
    options: MeasureOptions = DEFAULT_OPTIONS,
) -> list[MeasuredRank]:
    """Measure several networks, each by one of the workers.

    Each keeps its checkpoint in a numbered folder of its own. On this machine they share the
    memory evenly; in a cluster `memory_limit` is what each may use.
    """
    limit = options.memory_limit
    if options.workers.is_local:
        at_once = min(options.workers.num_local, max(1, len(questions)))
        limit = (limit or default_memory_limit()) // at_once
    tasks = []
    for number, (network, partition) in enumerate(questions):
        folder = None if options.checkpoint is None else options.checkpoint / f"{number:04d}"
        own = replace(
            options,
            memory_limit=limit,
            checkpoint=folder,
            workers=Workers("sequential"),
            report=ignore,  # a callback need not work in another process
        )
        tasks.append((network, partition, own))
    results: dict[int, MeasuredRank] = {}
    for number, measured in options.workers.run(_measure_one, tasks):
        results[number] = measured
        options.report(Progress("measurements", len(results), len(tasks)))
    return [results[number] for number in range(len(tasks))]


def _measure_one(task: tuple[nn.Module, Partition, MeasureOptions]) -> MeasuredRank:
    return measure_rank(*task)


def _require_polynomial(network: nn.Module) -> PolynomialNetwork:
    if not isinstance(network, PolynomialNetwork):
        raise UnsupportedModuleError(
            f"measure_rank: exact ranks need a polynomial network of rankscope.rank, "
            f"got {type(network).__name__}. The numeric mode, separation_rank(function, …), takes "
            f"any function."
        )
    return network


def _require_first_sample(
    network: PolynomialNetwork,
    partition: Partition,
    options: MeasureOptions,
    upper: int | None,
    grade_uppers: tuple[int, ...] | None,
) -> None:
    """Say what a measurement takes if that is too much, before anything is computed."""
    cost = evaluation_cost(network)
    products = network.program_products(cost.products)
    each, before = cost.seconds, 0.0
    if products is not None:
        each = products * _SECONDS_EACH_PRODUCT + _SECONDS_EACH_VALUE
        before = products * _SECONDS_WRITING
    shapes = [] if upper is None else [(upper, upper)]
    if upper is None or upper > LARGEST_UNGRADED:
        each *= len(network.grade_degrees(partition))
        shapes = [(part, part) for part in grade_uppers] if grade_uppers else shapes
    budget = MemoryBudget(options.memory_limit or default_memory_limit())
    is_large = not budget.fits(shapes)
    allowed = options.max_seconds or (_SECONDS_IF_LARGE if is_large else _SECONDS_ALLOWED)
    side = TILE_SIDE if upper is None else min(TILE_SIDE, upper)
    seconds = before + side**2 * each
    if seconds <= allowed:
        return
    memory = ""
    if is_large:
        needed = budget.needed(shapes) >> 20
        memory = f"; the best bound, {readable(upper or 0)}, would need {readable(needed)} MiB"
    fits = int(max(0.0, (allowed - before) / each) ** 0.5)
    largest = f"{fits} x {fits} is the largest that fits" if fits else "no sample fits"
    raise BudgetError(
        f"Measuring {network.family} on a first sample of {side} x {side} points is estimated to "
        f"take {readable_seconds(seconds)} of one core ({readable(products or cost.products)} "
        f"products for each value){memory}. In {readable_seconds(allowed)}, {largest}. Make the "
        f"network smaller, or allow more (--max-seconds)."
    )


def _split(
    network: PolynomialNetwork,
    partition: Partition,
    seed: int,
    weights: Mapping[str, Tensor] | None,
    prime: int,
) -> SplitFunction:
    residues = None if weights is None else weight_residues(weights, prime)
    return network.split(partition, seed=seed, prime=prime, weights=residues)


def _drawn_degree(network: PolynomialNetwork, *, has_given_weights: bool) -> int:
    """The degree of the output in the weights and inputs that are drawn at random."""
    in_weights = 0 if has_given_weights else network.weight_degree
    in_inputs = 0 if network.num_templates is not None else network.input_degree
    return in_weights + in_inputs
