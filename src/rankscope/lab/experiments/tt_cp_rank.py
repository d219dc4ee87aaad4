"""`tt-cp-rank`: the CP rank of a random tensor train with equal cores.

Alkin (2024) estimates CP ranks of random trains (n = 2, bond 3) with Tensorlab, beside the bound
q^(d/2). Here the rank is enclosed: the lower end is proved for the very tensor, whose entries are
integers; the upper end is a decomposition that was found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from rankscope.errors import ExperimentError
from rankscope.factorize.cp_fit import CPFit, FitOptions
from rankscope.factorize.rank_interval import CPRankOptions, cp_rank
from rankscope.lab.experiments.claims import Claims, Statement, Verdict
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_names import Names, place_names
from rankscope.lab.experiments.figure_parts import Mark, colour, explain_marks
from rankscope.progress import Progress
from rankscope.rank.bounds.polynomials import alkin_lower_bound, odd_even_upper_bound
from rankscope.rank.elimination import rank_modulo
from rankscope.rank.partition import Partition
from rankscope.seeds import seed_of

Integers = NDArray[numpy.int64]
SIZE, BOND = 2, 3
_PRIME = 1073741789
_LARGEST_ENTRY = 9  # of a core
_MAX_ORDER = 13  # beyond, entries of the tensor may exceed 64 bits


@dataclass(frozen=True)
class TrainRankEntry(Entry):
    """The rank of one random train, between two bounds.

    Args:
        order: d.
        num_restarts: random starts of the search for each number of products.
        seed: of the cores.

    Raises:
        ExperimentError: if the order is out of range.
    """

    order: int
    num_restarts: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.order <= _MAX_ORDER:
            raise ExperimentError(
                f"TrainRankEntry: the order must lie in 2..{_MAX_ORDER}, got {self.order}."
            )

    @property
    def name(self) -> str:
        """Name the row by the order."""
        return f"order-{self.order}"

    def run(self, context: RunContext) -> Row:
        """Both ends of the interval, the matricization rank and the theorems."""
        tensor = random_train(self.order, self.seed)
        tried: list[CPFit] = []

        def report(fit: CPFit) -> None:
            tried.append(fit)
            # How many there will be depends on how they end.
            what = f"searches, now for {fit.num_components} products"
            context.report(Progress(what, len(tried), len(tried)))

        options = CPRankOptions(fit=FitOptions(num_restarts=self.num_restarts))
        result = cp_rank(tensor, options, report=report)
        is_even = self.order % 2 == 0
        published = alkin_lower_bound(order=self.order, size=SIZE, bond=BOND) if is_even else None
        cut = odd_even_upper_bound(order=self.order, size=SIZE, bond=BOND)
        return {
            "d": self.order,
            "q^(d/2)": None if published is None else published.value,
            "odd-even rank": odd_even_rank(tensor),
            "its minimal cut": cut.value,
            "CP rank at least": result.lower,
            "CP rank at most": result.upper,
            "error of the decomposition": result.upper_fit.relative_error,
            "searches": len(tried),
            "sizes without success": [float(size) for size in result.failed],
        }


def random_train(order: int, seed: int) -> Integers:
    """The coefficients of a train with equal inner cores of random integers, -9 to 9."""
    generator = numpy.random.default_rng(seed_of("train", order, seed))
    first, inner, last = (
        generator.integers(-_LARGEST_ENTRY, _LARGEST_ENTRY, shape, endpoint=True)
        for shape in ((SIZE, BOND), (BOND, SIZE, BOND), (BOND, SIZE))
    )
    return coefficients(first, inner, last, order)


def coefficients(first: Integers, inner: Integers, last: Integers, order: int) -> Integers:
    """The tensor of a train of cores (size, bond), (bond, size, bond) and (bond, size)."""
    tensor = first
    for _ in range(order - 2):
        tensor = numpy.tensordot(tensor, inner, axes=1)
    return numpy.tensordot(tensor, last, axes=1)


def odd_even_rank(tensor: Integers) -> int:
    """Rank of odd positions against even ones, modulo a prime: no more than the rank itself."""
    split = Partition.interleaved(tensor.ndim)
    rows = SIZE ** len(split.left)
    return rank_modulo(tensor.transpose(split.left + split.right).reshape(rows, -1), _PRIME)


def intervals(rows: Sequence[Row]) -> object:
    """The intervals of all runs beside the bound, on a logarithmic scale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    names = Names(axes)
    axes.set_yscale("log", base=2)
    for number, (name, style) in enumerate((("q^(d/2)", "-"), ("odd-even rank", ":")), start=1):
        points = {
            float(str(row["d"])): float(str(row[name])) for row in rows if row[name] is not None
        }
        axes.plot([*points], [*points.values()], style, color=colour(number))
        names.ends.append((name, colour(number), list(points.items())))
    for row in rows:
        place, least, most = (
            float(str(row[name])) for name in ("d", "CP rank at least", "CP rank at most")
        )
        place += 0.15 * int(str(row["seed"] or 0))  # seeds beside each other
        axes.plot([place, place], [least, most], "o-", color=colour(0), markersize=3)
    axes.set_xlabel("order d")
    axes.set_ylabel("rank")
    axes.yaxis.set_major_formatter("{x:g}")
    explain_marks(figure, [Mark("CP rank of one train, from proved to found", colour(0))])
    place_names(figure, [names])
    return figure


_ANSWER = "CP rank proved to be at least q^(d/2)"


def bound_facts(rows: Sequence[Row]) -> list[Statement]:
    """Whether the bound of the theorem holds, where it is the rank itself, and every interval."""
    even = [row for row in rows if row["q^(d/2)"] is not None]
    if not even:
        return _enclosed(rows)
    held = [row for row in even if _number(row, "CP rank at least") >= _number(row, "q^(d/2)")]
    reached = [
        order
        for order in sorted({_number(row, "d") for row in even})
        if all(
            _number(row, "CP rank at most") <= _number(row, "q^(d/2)")
            for row in even
            if _number(row, "d") == order
        )
    ]
    detail = f"in {len(held)} of {len(even)} trains of even order"
    if reached:
        detail += f"; no more products than that were needed at order {_joined(reached)}"
    return [Statement(_ANSWER, Verdict.FACT, detail), *_enclosed(rows)]


def _number(row: Row, name: str) -> int:
    return int(str(row[name]))


def _joined(orders: Sequence[int]) -> str:
    *others, last = map(str, orders)
    return f"{', '.join(others)} and {last}" if others else last


def _enclosed(rows: Sequence[Row]) -> list[Statement]:
    """The interval of the CP rank of every order, and whether it is one number for all trains."""
    results = []
    for order in dict.fromkeys(int(str(row["d"])) for row in rows):
        own = [row for row in rows if row["d"] == order]
        least, most = (
            [_number(row, name) for row in own] for name in ("CP rank at least", "CP rank at most")
        )
        bound = own[0]["q^(d/2)"]
        beside = "" if bound is None else f"; q^(d/2) is {bound}"
        if least == most and len(set(least)) == 1:
            detail = f"{least[0]} for all {len(own)} trains{beside}"
        else:
            detail = f"from {min(least)} (proved) to {min(most)} .. {max(most)} (found){beside}"
        results.append(Statement(f"CP rank at order {order}", Verdict.FACT, detail))
    return sorted(results, key=lambda one: "for all" not in one.detail)


TT_CP_RANK = Experiment(
    name="tt-cp-rank",
    title="CP rank of random trains with equal cores (n = 2, bond 3)",
    entries=(
        *(TrainRankEntry(order) for order in range(2, 9)),
        TrainRankEntry(9, num_restarts=3),
        TrainRankEntry(10, num_restarts=1),
    ),
    quick=tuple(TrainRankEntry(order, num_restarts=3) for order in range(2, 8)),
    protocol=(
        "A first, an inner and a last core of random integers from -9 to 9; the inner one is used "
        "d - 2 times. The CP rank is at least the largest rank of a matricization or Koszul "
        "flattening modulo a prime, which is a proof for this tensor, and at most the smallest "
        "number of real products that damped Gauss-Newton descents reached a relative error of "
        "1e-10 with, which is no proof. Each number is tried from the nearest factors so far and "
        "from 10 random starts (3 for d = 9, 1 for d = 10). A number that all starts fail at is "
        "not ruled out: where the ends differ, the rank may be any number between them."
    ),
    seconds=1200.0,
    seeds=3,
    figure=intervals,
    claims=Claims(
        "What is the CP rank of a random tensor train?",
        facts=bound_facts,
        answer=_ANSWER,
        hypothesis="The CP rank of almost every train with equal cores is at least q^(d/2), "
        "q = min(n, r - 1) (Alkin 2024).",
    ),
)
