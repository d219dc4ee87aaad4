"""One call from a model to a smaller one.

compressed = compress(model, keep=0.1)
compressed.model, compressed.plan
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from torch import nn

from rankscope.compression.applying import Compressed, carry_out
from rankscope.compression.loss_scores import Loss
from rankscope.compression.plan import Budget, Row, Unit
from rankscope.compression.planning import Tolerance, plan_compression, state_bytes
from rankscope.compression.scores import Batch, Scoring, Weights
from rankscope.compression.usage import BATCH_SIZES, REPEATS, Latency, measure_latency
from rankscope.errors import CompressionError
from rankscope.factorize.cores import CoreStore
from rankscope.factorize.formats.format import Format
from rankscope.progress import Report, ignore

__all__ = ["Compressed", "compress"]


def compress(  # noqa: PLR0913 - one keyword for each thing that a plan depends on
    model: nn.Module,
    keep: float = 0.1,
    calibration: Iterable[Batch] | Scoring | None = None,
    *,
    by: Unit = Unit.PARAMETERS,
    also: Budget | None = None,
    formats: Sequence[Format] | None = None,
    example: Batch | None = None,
    bits: Sequence[int] = (),
    leave: Sequence[str] = (),
    tolerance: float | None = None,
    report: Report = ignore,
) -> Compressed:
    """A compressed copy of a model, and the plan that it follows.

    Args:
        model: any module; it stays as it is.
        keep: the share of the model's total that may be kept, also counting what cannot be
            compressed.
        calibration: batches of real inputs; what an error counts for is then the change of the
            model's outputs on them (see `Loss`). A scoring is taken as it is. Without, errors are
            those of the weights.
        by: what `keep` is a share of.
        also: a second budget in another unit, such as `Budget(0.5, Unit.LATENCY)`.
        formats: see `plan_compression`.
        example: see `plan_compression`; without one, flops and latency are not known.
        bits: see `plan_compression`.
        leave: see `plan_compression`.
        tolerance: a relative error for each weight, instead of `keep`.
        report: called with the progress.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        >>> small = compress(model, keep=0.25)
        >>> sum(parameter.numel() for parameter in small.model.parameters()) <= 0.25 * 4810
        True

    Raises:
        CompressionError: see `plan_compression` and `apply_plan`.
    """
    scoring = scoring_on(calibration)
    plan = plan_compression(
        model,
        Budget(keep, by, also) if tolerance is None else Tolerance(tolerance),
        formats=formats,
        example=example,
        scores=scoring,
        bits=bits,
        leave=leave,
        report=report,
    )
    return carry_out(model, plan, scores=scoring, example=example, report=report)


def scoring_on(calibration: Iterable[Batch] | Scoring | None) -> Scoring:
    """The measured loss on batches; a scoring as it is; without anything, errors of weights."""
    if calibration is None:
        return Weights()
    return calibration if isinstance(calibration, Scoring) else Loss(calibration)


# --- What compression did to a model: size, work, measured time, errors and scores, as plain data


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

    @property
    def has_collapsed(self) -> bool:
        """Whether so much is lost that the model is of no use as it is.

        More than a tenth of the accuracy, half as much perplexity again, another answer for one
        input of four, or a quarter of the outputs' squared norm.

        Example:
            >>> Score("accuracy", 0.9263, 0.2086).has_collapsed
            True
        """
        is_beyond = _COLLAPSED.get(self.name)
        return is_beyond is not None and is_beyond(self.dense, self.compressed)


_COLLAPSED: Mapping[str, Callable[[float, float], bool]] = {
    "accuracy": lambda dense, after: after < 0.9 * dense,
    "perplexity": lambda dense, after: after > 1.5 * dense,
    "agreement": lambda dense, after: after < 0.75 * dense,
    "output error": lambda dense, after: after - dense > 0.25,
}


@dataclass(frozen=True)
class CompressionReport:
    """The result of a compression in numbers.

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
