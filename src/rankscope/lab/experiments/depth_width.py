"""`depth-width`: at equal parameters, from which size on are deeper language models better?

Figure 7.5 of Levine et al. (2022): networks that are too narrow for their depth gain nothing from
more layers, wider ones do, and the border moves to larger sizes as depth grows.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise

from rankscope.auditing.depth_width_law import LEVINE
from rankscope.lab.experiments.baselines import language_baselines
from rankscope.lab.experiments.claims import Claims, Pair, Score, Statement, Verdict
from rankscope.lab.experiments.experiment import Experiment, Row
from rankscope.lab.experiments.figure_lines import LineFigure
from rankscope.lab.experiments.sequence_models import CharacterTask, SequenceEntry, Steps
from rankscope.networks.sequence import MultiHead, TransformerShape

# Where the losses of two depths cross as models grow, measured and by the fitted law.


# Loss for each number of parameters in blocks.
Curve = Mapping[float, float]
_DEPTH, _SIZE, _LOSS = "depth", "in blocks", "test loss"
_ANSWER = "Weights in blocks from which on more layers are better"


def crossing(shallow: Curve, deep: Curve) -> float | None:
    """The size from which on the deeper models are better, on straight lines over the log of sizes.

    The last change of sign counts. None if the deeper models are better at the smallest common
    size already (and stay so), or not yet at the largest.

    Example:
        >>> round(crossing({1.0: 1.0, 100.0: 0.8}, {1.0: 1.1, 100.0: 0.7}))
        10
    """
    differences = _differences(shallow, deep)
    result = None
    for (before, low), (after, high) in pairwise(differences):
        if low > 0 >= high:
            share = low / (low - high)
            result = math.exp(math.log(before) + share * (math.log(after) - math.log(before)))
    return None if not differences or differences[-1][1] > 0 else result


def crossing_rows(rows: Sequence[Row]) -> list[Row]:
    """A row for every two neighbouring depths: the crossing of the mean losses, and of each seed.

    The law puts the border between "widen" and "deepen" of a depth L at N(L) parameters, so that
    models of two depths should change places between its two borders.
    """
    rows = [row for row in rows if _DEPTH in row]
    depths = sorted({int(str(row[_DEPTH])) for row in rows if _LOSS in row})
    results: list[Row] = []
    for shallow, deep in pairwise(depths):
        means = _curve(rows, shallow), _curve(rows, deep)
        each = [
            crossing(_curve(rows, shallow, seed), _curve(rows, deep, seed))
            for seed in sorted({int(str(row["seed"] or 0)) for row in rows})
        ]
        known = [size for size in each if size is not None]
        results.append(
            {
                "depths": f"{shallow} and {deep}",
                "deeper is better from": crossing(*means),
                "of seeds, lowest": min(known, default=None),
                "of seeds, highest": max(known, default=None),
                "seeds with a crossing": f"{len(known)} of {len(each)}",
                "deeper better at smallest size": _text(_differences(*means)[0][1] <= 0),
                "deeper better at largest size": _text(_differences(*means)[-1][1] <= 0),
                "law, border of the shallower": LEVINE.parameters(shallow),
                "law, border of the deeper": LEVINE.parameters(deep),
            }
        )
    return results


def crossing_facts(rows: Sequence[Row]) -> list[Statement]:
    """In one sentence: the border from which on each depth is better than the one before it.

    The hypothesis has these borders grow with depth, so it is said in how many seeds they do.
    """
    rows = [row for row in rows if _DEPTH in row and _LOSS in row]
    depths = sorted({int(str(row[_DEPTH])) for row in rows})
    seeds = sorted({int(str(row["seed"] or 0)) for row in rows})
    curves = [_curve(rows, depth, seed) for seed in seeds for depth in depths]
    if not rows or min(map(len, curves)) < len(SIZES):
        return []
    means = pairwise(_curve(rows, depth) for depth in depths)
    parts = [
        f"{deep} layers against {shallow} {_where(*curves)}"
        for (shallow, deep), curves in zip(pairwise(depths), means, strict=True)
    ]
    grow = sum(_borders_grow(rows, depths, seed) for seed in seeds)
    detail = f"{', '.join(parts)}; the border grows with depth in {grow} of {len(seeds)} seeds"
    return [Statement(_ANSWER, Verdict.FACT, detail)]


def _where(shallow: Curve, deep: Curve) -> str:
    border = _border(shallow, deep)
    if border == 0:
        return "at all sizes"
    if border == math.inf:
        return f"not up to {_differences(shallow, deep)[-1][0]:,.0f}"
    return f"from {float(f'{border:.2g}'):,.0f} on"


def _border(shallow: Curve, deep: Curve) -> float:
    """The size from which on the deeper models are better: 0 for all sizes, infinity for none."""
    size = crossing(shallow, deep)
    if size is not None:
        return size
    return 0.0 if _differences(shallow, deep)[-1][1] <= 0 else math.inf


def _borders_grow(rows: Sequence[Row], depths: Sequence[int], seed: int) -> bool:
    curves = [_curve(rows, depth, seed) for depth in depths]
    borders = [_border(*pair) for pair in pairwise(curves)]
    return all(one < other for one, other in pairwise(borders))


def _differences(shallow: Curve, deep: Curve) -> list[tuple[float, float]]:
    """Loss of the deeper models minus that of the shallower, at every size that both reach."""
    low = max(min(shallow), min(deep))
    high = min(max(shallow), max(deep))
    sizes = sorted({min(max(size, low), high) for size in (*shallow, *deep)})
    return [(size, _at(deep, size) - _at(shallow, size)) for size in sizes]


def _at(curve: Curve, size: float) -> float:
    points = sorted(curve.items())
    for (before, low), (after, high) in pairwise(points):
        if before <= size <= after:
            share = (math.log(size) - math.log(before)) / (math.log(after) - math.log(before))
            return low + share * (high - low)
    return dict(points)[size]


def _curve(rows: Sequence[Row], depth: int, seed: int | None = None) -> dict[float, float]:
    losses: dict[float, list[float]] = {}
    for row in rows:
        is_wanted = row.get(_DEPTH) == depth and (seed is None or (row["seed"] or 0) == seed)
        if is_wanted and isinstance(row.get(_LOSS), float):
            losses.setdefault(float(str(row[_SIZE])), []).append(float(str(row[_LOSS])))
    return {size: statistics.fmean(values) for size, values in losses.items()}


def _text(answer: bool) -> str:  # noqa: FBT001 - one word for one answer
    return "yes" if answer else "no"


DEPTHS = (1, 2, 4, 8)
SIZES = (16_000, 48_000, 160_000, 480_000)  # parameters in blocks
HEADS = 2
STEPS = Steps(1800)


def shape_of(depth: int, size: int, num_positions: int) -> TransformerShape:
    """The shape of a depth whose matrices have about so many weights, of an even width.

    Example:
        >>> shape_of(4, 48_000, 64).width, shape_of(4, 48_000, 64).squares
        (32, 49152)
    """
    width = HEADS * round(math.sqrt(size / (12 * depth)) / HEADS)
    attention = MultiHead(HEADS, width // HEADS)
    return TransformerShape(depth, width, attention, num_positions)


def _entry(depth: int, size: int, task: CharacterTask, steps: Steps) -> SequenceEntry:
    label = f"depth-{depth}-size-{size}"
    return SequenceEntry(label, task, shape_of(depth, size, task.length), steps)


def _entries(
    task: CharacterTask, depths: tuple[int, ...], sizes: tuple[int, ...], steps: Steps
) -> tuple[SequenceEntry, ...]:
    """Every depth at every size."""
    return tuple(_entry(depth, size, task, steps) for depth in depths for size in sizes)


LOSS = Score("test loss", "nats", baseline="baseline-3-gram")


_QUICK = _entries(CharacterTask("embedded", 32), (1, 2, 4), (3_000, 12_000), Steps(60))

_CLAIMS = Claims(
    "From which size on are deeper language models better?",
    tuple(
        Pair(
            f"{deep} layers against {shallow} at {size // 1000} thousand weights",
            f"depth-{deep}-size-{size}",
            f"depth-{shallow}-size-{size}",
            LOSS,
        )
        for size in reversed(SIZES)
        for shallow, deep in pairwise(DEPTHS)
    ),
    (LOSS,),
    crossing_facts,
    answer=_ANSWER,
    hypothesis="More layers are worse below a size and better above it, and that size grows with "
    "depth (Levine et al. 2020).",
)

DEPTH_WIDTH = Experiment(
    name="depth-width",
    title="Characters of Shakespeare: test loss (nats) of language models by depth and size",
    entries=(
        *language_baselines(CharacterTask()),
        *_entries(CharacterTask(), DEPTHS, SIZES, STEPS),
    ),
    claims=_CLAIMS,
    needs="tinyshakespeare",
    quick=_QUICK,
    protocol=(
        "Causal softmax transformers (two heads, feed-forward width four times the width, learned "
        "positions) of depths 1, 2, 4, 8 and widths such that the matrices of all blocks have "
        "about 16, 48, 160 and 480 thousand weights. Each sees 1,800 batches of 32 windows of 64 "
        "characters: Adam, rate up to 2e-3 over a tenth of the steps, then down to 0 in a line, "
        "gradients clipped at norm 1. The loss is that of the last 5 % of the text. Crossings are "
        "where straight lines through the mean losses, over the logarithm of the number of "
        "weights, change places; the law is that of Levine et al. (2020)."
    ),
    seeds=3,
    columns=("test loss", "shape", "parameters", "in blocks", "kept MB", "seconds"),
    figure=LineFigure("in blocks", "test loss", "depth"),
    summary=crossing_rows,
)
