"""One call from a model to a smaller one.

compressed = compress(model, keep=0.1)
compressed.model, compressed.plan
"""

from collections.abc import Iterable, Sequence

from torch import nn

from rankscope.compression.activations import Activations
from rankscope.compression.applying import Compressed, carry_out
from rankscope.compression.plan import Budget, Unit
from rankscope.compression.planning import Tolerance, plan_compression
from rankscope.compression.scores import Batch, Scoring, Weights
from rankscope.layers.formats.format import Format
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
        calibration: batches of real inputs; errors are then those of outputs on them. A scoring
            is taken as it is. Without, errors are those of the weights.
        by: what `keep` is a share of.
        also: a second budget in another unit, such as `Budget(0.5, Unit.LATENCY)`.
        formats: see `plan_compression`.
        example: see `plan_compression`; without one, flops and latency are not known.
        bits: see `plan_compression`.
        leave: see `plan_compression`.
        tolerance: a relative error for each weight, instead of `keep`.
        report: is told how far it has come.

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
    return carry_out(model, plan, scores=scoring, example=example)


def scoring_on(calibration: Iterable[Batch] | Scoring | None) -> Scoring:
    """Errors of outputs on batches; a scoring as it is; without anything, of the weights."""
    if calibration is None:
        return Weights()
    return calibration if isinstance(calibration, Scoring) else Activations(calibration)
