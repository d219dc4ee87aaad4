"""`spectrum-predicts-loss`: do singular values tell which matrices can lose rank at least loss?

Every matrix inside the blocks of a language model is cut to half of its parameters, alone, and the
divergence of the predictions from the uncompressed model's is measured. What spectra say is then
correlated with it, beside two rules that look at no spectrum: the size of the matrix, and what
matrices of the same kind lose in the other blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from rankscope.compression.loss_scores import Divergence, Loss, LossCurve
from rankscope.compression.scores import whiten
from rankscope.compression.sites import Site
from rankscope.drawing.themes import LIGHT
from rankscope.errors import ExperimentError
from rankscope.lab.experiments.claims import Claims, Statement, Verdict
from rankscope.lab.experiments.decoder_compression import (
    DecoderWorkload,
    SmolLM2,
    Stories260k,
    block_sites,
    uniform_rank,
)
from rankscope.lab.experiments.experiment import Entry, Experiment, Row, RunContext
from rankscope.lab.experiments.figure_names import place_names
from rankscope.lab.experiments.wording import worded

SHARE = 0.5  # of a matrix's parameters that its two factors hold
_POINTS = 3  # truncations at a sixth, a half and five sixths of a matrix's parameters
_RESAMPLED = 2000  # times, blocks with replacement
LOST = "divergence"
# Columns of numbers, one for each matrix. All but the last two come from singular values.
PREDICTORS = ("lost of the weights", "lost of the outputs", "effective rank")
OTHER_BLOCKS = "kind in other blocks"
RULES = (*PREDICTORS, "parameters", OTHER_BLOCKS)


@dataclass(frozen=True)
class SpectrumEntry(Entry):
    """One model: all matrices of its blocks.

    Args:
        model: its name.
        workload: the model and its texts.
    """

    has_checkpoints: ClassVar[bool] = True

    model: str
    workload: DecoderWorkload

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model

    def run(self, context: RunContext) -> Row:
        """Lists with a number for each matrix, and the correlation of each rule."""
        decoder = self.workload.open(context.data)
        scoring = Loss(
            decoder.batches(),
            distance=Divergence(),
            points=_POINTS,
            measured=decoder.measured,
            memory=context.folder / "losses.json",
        )
        scoring.prepare(decoder.model, left=decoder.left, report=context.report)
        columns: dict[str, list[float]] = {}
        kinds: list[str] = []
        for site in block_sites(decoder):
            norm = scoring.error_norm(site.name)
            curve = None if norm is None else norm.curve
            if not isinstance(curve, LossCurve) or len(curve.points) != _POINTS:
                raise ExperimentError(f"{self.name}: {site.name} has no measured divergence.")
            outputs, divergence = curve.points[_POINTS // 2]
            kinds.append(site.name.rpartition(".")[2])
            numbers = {
                LOST: divergence,
                "lost of the weights": lost_of(site, uniform_rank(site, SHARE)),
                "lost of the outputs": outputs,
                "effective rank": effective_rank(torch.linalg.svdvals(_matrix(site))),
                "parameters": float(site.num_parameters),
                "block": float(_block(site.name)),
            }
            for column, number in numbers.items():
                columns.setdefault(column, []).append(number)
        columns[OTHER_BLOCKS] = of_other_blocks(columns[LOST], columns["block"], kinds)
        table = {name: numpy.array(values) for name, values in columns.items()}
        found = correlations(table)
        scalars = {name: interval[0] for name, interval in found.items()}
        ends = {f"{name}, interval": [*interval[1:]] for name, interval in found.items()}
        row: Row = {"matrices": len(kinds), **scalars, **ends}
        return row | {f"{name}, each": values for name, values in columns.items()}


def _matrix(site: Site) -> torch.Tensor:
    return whiten(site.weight, None).flatten(2)[0].double()


def _block(name: str) -> int:
    """The first number in a name: that of the block.

    Example:
        >>> _block("model.layers.12.mlp.up_proj")
        12
    """
    return int(next(part for part in name.split(".") if part.isdigit()))


def lost_of(site: Site, rank: int) -> float:
    """The share of the squared singular values behind a rank."""
    squares = torch.linalg.svdvals(_matrix(site)).square()
    return float(squares[rank:].sum() / squares.sum())


def effective_rank(values: torch.Tensor) -> float:
    """The exponential of the entropy of the squared singular values, over their number.

    Example:
        >>> effective_rank(torch.ones(4))
        1.0
    """
    shares = values.square() / values.square().sum()
    return float(torch.special.entr(shares).sum().exp()) / len(values)


def of_other_blocks(
    losses: Sequence[float], blocks: Sequence[float], kinds: Sequence[str]
) -> list[float]:
    """The mean loss of the matrices of the same kind in all other blocks.

    Example:
        >>> of_other_blocks([1.0, 5.0, 3.0], [0, 0, 1], ["query", "key", "query"])
        [3.0, nan, 1.0]
    """
    everything = list(zip(losses, blocks, kinds, strict=True))
    results = []
    for _, block, kind in everything:
        others = [loss for loss, other, same in everything if other != block and same == kind]
        results.append(sum(others) / len(others) if others else float("nan"))
    return results


def correlations(
    table: Mapping[str, NDArray[numpy.float64]],
) -> dict[str, tuple[float, float, float]]:
    """Spearman's correlation of each rule with the divergence, and its 95 % interval.

    Matrices of one block are not independent: blocks are drawn with replacement. Last, the same
    for what each spectrum is ahead of the kind in other blocks, in the same draws.
    """
    blocks = numpy.unique(table["block"])
    rows = [numpy.flatnonzero(table["block"] == block) for block in blocks]
    generator = numpy.random.default_rng(0)
    drawn = [
        numpy.concatenate(
            [rows[number] for number in generator.integers(len(rows), size=len(rows))]
        )
        for _ in range(_RESAMPLED)
    ]
    everything = numpy.arange(len(table["block"]))
    results: dict[str, tuple[float, float, float]] = {}
    values = {rule: numpy.array([_with(table, rule, rows) for rows in drawn]) for rule in RULES}
    exact = {rule: _with(table, rule, everything) for rule in RULES}
    for rule in RULES:
        results[rule] = (exact[rule], *_ends(values[rule]))
    for rule in PREDICTORS:
        ahead = exact[rule] - exact[OTHER_BLOCKS]
        ends = _ends(values[rule] - values[OTHER_BLOCKS])
        results[f"{rule}, ahead"] = (ahead, *ends)
    return results


def _with(
    table: Mapping[str, NDArray[numpy.float64]], rule: str, rows: NDArray[numpy.int64]
) -> float:
    first, second = (rankdata(table[name][rows]) for name in (rule, LOST))
    first, second = first - first.mean(), second - second.mean()
    return float(first @ second / numpy.sqrt((first @ first) * (second @ second)))


def _ends(values: NDArray[numpy.float64]) -> tuple[float, float]:
    low, high = numpy.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


_WORDS = {
    "lost of the weights": "share of the weights' squares that is cut",
    "lost of the outputs": "share of the outputs' squares that is cut",
    "effective rank": "effective rank of the weights",
}
_ANSWER = "Spectra that tell more than what the same kind of matrix loses in other blocks"


def _said(rows: Sequence[Row]) -> list[Statement]:
    """Whether each spectrum tells more than the kind of the matrix does."""
    results = []
    alone, kinds = [], [_interval(row, OTHER_BLOCKS)[0] for row in rows]
    for row, kind in zip(rows, kinds, strict=True):
        for rule in PREDICTORS:
            value, (low, high) = _interval(row, rule)
            ahead, (least, most) = _interval(row, f"{rule}, ahead")
            detail = (
                f"correlation {value:+.2f} ({low:+.2f} to {high:+.2f}), {ahead:+.2f} ({least:+.2f} "
                f"to {most:+.2f}) beside what its kind loses in other blocks ({kind:+.2f})"
            )
            verdict = Verdict.DECIDED if least > 0 else Verdict.UNDECIDED
            if most < 0:
                verdict = Verdict.BELOW
            results.append(Statement(f"{_model(row)}: {_WORDS[rule]}", verdict, detail))
            alone.append(value)
    if not results:
        return []
    decided = sum(one.verdict is Verdict.DECIDED for one in results)
    detail = (
        f"{decided} of {len(results)}; alone they correlate {min(alone):+.2f} to {max(alone):+.2f} "
        f"with the loss, the kind {min(kinds):+.2f} to {max(kinds):+.2f}"
    )
    return [*results, Statement(_ANSWER, Verdict.FACT, detail)]


def _model(row: Row) -> str:
    return worded(str(row["setting"]))


def _interval(row: Row, name: str) -> tuple[float, Sequence[float]]:
    value, ends = row[name], row[f"{name}, interval"]
    assert isinstance(value, float), "rows of SpectrumEntry hold numbers"
    assert isinstance(ends, list), "and lists"
    return value, ends


# Matplotlib's classes can only be named where it is imported; hence Any.
def draw_predictors(rows: Sequence[Row]) -> Any:
    """Divergence over what is lost of the outputs and of the weights; one point for each matrix."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(7.2, 2.9 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), 2, squeeze=False, sharey="row")
    color = LIGHT.shape("parameter").stroke
    for line, row in zip(panels, rows, strict=True):
        for panel, rule in zip(line, ("lost of the weights", "lost of the outputs"), strict=True):
            panel.loglog(row[f"{rule}, each"], row[f"{LOST}, each"], ".", color=color, ms=4)
            value, (low, high) = _interval(row, rule)
            panel.set_title(
                f"{_model(row)}, correlation {value:+.2f} ({low:+.2f} to {high:+.2f})",
                loc="left", fontsize="small", fontweight="bold",
            )  # fmt: skip
            panel.set_xlabel(f"share {rule}, squared")
            panel.xaxis.set_minor_formatter(NullFormatter())
            panel.grid(visible=True, alpha=0.3)
        line[0].set_ylabel("divergence (nats)")
    place_names(figure, [])
    return figure


SPECTRUM_PREDICTS_LOSS = Experiment(
    name="spectrum-predicts-loss",
    title="Matrices cut to half of their parameters, one at a time: spectra and divergence",
    entries=(
        SpectrumEntry("smollm2", SmolLM2()),
        SpectrumEntry("stories260k", Stories260k()),
    ),
    needs="stories260k (llama2.c), Multi30k, SmolLM2-135M-Instruct, wikitext-2, and [hf]",
    seconds=3600.0,
    protocol=(
        "Each matrix inside the blocks is cut alone, to the rank whose two factors hold half of "
        "its parameters, in the norm of its outputs on calibration data; the divergence of the "
        "predictions from the uncompressed model's is measured (stories260k: 48 x 128 tokens of "
        "its own; SmolLM2: 2 x 256 tokens of wikitext-2, at 64 places of each). Spearman's "
        "correlation over matrices of the divergence with: the share of squared singular values "
        "behind that rank, of the weights and of the weights times their inputs' moments; the "
        "effective rank (exponential of the entropy); the number of parameters; and the mean "
        "divergence of the matrices of the same kind in all other blocks, which looks at no "
        "spectrum. 95 % intervals by drawing blocks with replacement, 2,000 times."
    ),
    figure=draw_predictors,
    claims=Claims(
        "Does a matrix's spectrum predict what cutting its rank costs?",
        facts=_said,
        answer=_ANSWER,
        stopping="Both models once; nothing is random but the drawn blocks.",
    ),
)
