"""What compression did to a model: size, work, measured time, errors and scores, as plain data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from torch import nn

from rankscope.compression.applying import Compressed
from rankscope.compression.budgets import state_bytes
from rankscope.compression.latency_table import BATCH_SIZES, REPEATS, Latency, measure_latency
from rankscope.compression.plan import Row
from rankscope.compression.scores import Batch
from rankscope.errors import CompressionError
from rankscope.layers.cores import CoreStore

Scorer = Callable[[nn.Module], Mapping[str, float]]

MEANING = (
    "A ratio is what the compressed model has / what the dense one has, of the whole model and in "
    "the unit of its row: 0.1 of the parameters is ten times fewer. Bytes are those of the state "
    "dict; flops are operations of one example batch, a multiply-add counted as two; a latency "
    "ratio is the median over pairs of calls."
)


@dataclass(frozen=True)
class Total:
    """The whole model in one unit, before and after."""

    unit: str
    dense: int
    kept: int

    @property
    def ratio(self) -> float:
        """Kept / dense."""
        return self.kept / self.dense


@dataclass(frozen=True)
class Score:
    """One number that a scorer gives, before and after."""

    name: str
    dense: float
    compressed: float


@dataclass(frozen=True)
class CompressionReport:
    """What became of a model.

    Args:
        totals: parameters and bytes as counted on the two models, flops as the plan counts them
            (left out if it was made without an example).
        latencies: measured side by side; none without an example.
        layers: rows of the plan, with the error of each weight.
        scores: what the scorer gives; none without one.
        meaning: of the ratios, in words.
    """

    totals: tuple[Total, ...]
    latencies: tuple[Latency, ...]
    layers: tuple[Row, ...]
    scores: tuple[Score, ...]
    meaning: str = MEANING

    def to_dict(self) -> dict[str, object]:
        """Plain data, for JSON."""
        return {
            "meaning": self.meaning,
            "totals": [{**asdict(total), "ratio": total.ratio} for total in self.totals],
            "latencies": [asdict(latency) for latency in self.latencies],
            "scores": [asdict(score) for score in self.scores],
            "layers": [asdict(row) for row in self.layers],
        }

    def __str__(self) -> str:
        parts = [f"{total.ratio:.1%} of the {total.unit}" for total in self.totals]
        parts += [
            f"{latency.ratio:.2f} of the time at batch {latency.batch_size}"
            for latency in self.latencies
        ]
        parts += [
            f"{score.name} {score.dense:.4g} before, {score.compressed:.4g} after"
            for score in self.scores
        ]
        return "; ".join(parts)


def report_on(
    dense: nn.Module,
    compressed: Compressed,
    *,
    example: Batch | None = None,
    scorer: Scorer | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    repeats: int = REPEATS,
) -> CompressionReport:
    """Count, time and score a model before and after compression.

    Args:
        dense: the model before.
        compressed: the model after, and its plan.
        example: one batch, for latencies.
        scorer: gives named numbers for a model, such as its accuracy.
        batch_sizes: at which latency is measured.
        repeats: pairs of calls at each size.

    Raises:
        CompressionError: if latency cannot be measured, or the scorer gives other names for the
            two models.
    """
    plan = compressed.plan
    totals = [
        Total("parameters", count_parameters(dense), count_parameters(compressed.model)),
        Total("bytes", state_bytes(dense), state_bytes(compressed.model)),
    ]
    if plan.dense.flops:
        totals.append(Total("flops", plan.dense.flops, plan.kept.flops))
    latencies: tuple[Latency, ...] = ()
    if example is not None:
        latencies = measure_latency(
            dense, compressed.model, example, batch_sizes=batch_sizes, repeats=repeats
        )
    scores = () if scorer is None else _scores(scorer, dense, compressed.model)
    return CompressionReport(tuple(totals), latencies, plan.rows, scores)


def count_parameters(model: nn.Module) -> int:
    """Numbers that a model holds, quantized ones included and shared ones once.

    Example:
        >>> count_parameters(nn.Linear(3, 2))
        8
    """
    stores = [module for module in model.modules() if isinstance(module, CoreStore)]
    quantized = sum(store.num_parameters for store in stores if store.bits is not None)
    return quantized + sum(parameter.numel() for parameter in model.parameters())


def _scores(scorer: Scorer, dense: nn.Module, compressed: nn.Module) -> tuple[Score, ...]:
    before, after = scorer(dense), scorer(compressed)
    if set(before) != set(after):
        raise CompressionError(
            f"report: the scorer gives {sorted(before)} for the dense model, but {sorted(after)} "
            "for the compressed one."
        )
    return tuple(Score(name, float(value), float(after[name])) for name, value in before.items())
