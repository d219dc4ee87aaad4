"""A compression plan: plain data that says, for every weight, what is kept and why.

A model is read into `Site`s (one for each weight that could be written smaller, with the module
that holds it), every site gets a list of `Candidate`s, the solver picks one of each under one
`Budget`, and what it picked is a `Plan`; applied to the same model, it gives the compressed one.
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum

from rankscope.layers.formats.format import Ranks

PLAN_VERSION = 2  # of `plan.json`; in version 1 a multiply-add counted as one flop


class Unit(StrEnum):
    """What a budget counts."""

    PARAMETERS = "parameters"
    FLOPS = "flops"
    BYTES = "bytes"
    LATENCY = "latency"


@dataclass(frozen=True)
class Budget:
    """The share of the dense model's total that may be kept, in one unit.

    The total counts everything, also what cannot be compressed (biases, normalizations, heads that
    were left alone); only the share is a promise, and a plan never exceeds it.

    Args:
        keep: above 0 and at most 1.
        unit: what is counted.
        also: a second budget in another unit, to be met as well.
    """

    keep: float
    unit: Unit = Unit.PARAMETERS
    also: "Budget | None" = None

    @property
    def parts(self) -> "tuple[Budget, ...]":
        """Each of the budgets by itself."""
        first = Budget(self.keep, self.unit)
        return (first,) if self.also is None else (first, *self.also.parts)


@dataclass(frozen=True)
class Costs:
    """What something costs in every unit.

    Flops (operations, a multiply-add counted as two) and seconds are those of one example batch.
    """

    parameters: int
    flops: int
    bytes: int
    seconds: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """One way to write the weight of a site; `format` is None for the dense weight itself.

    Args:
        format: name of the format, see `rankscope.layers.formats`.
        ranks: of the format.
        bits: of each stored number: 32 or 16 as trained, 8 or 4 quantized.
        costs: of the site, written so.
        error: relative Frobenius error of the weight (of its outputs, if scored on activations).
        score: what the solver adds up: the squared error, weighted as the scoring says.
    """

    format: str | None
    ranks: Ranks
    bits: int
    costs: Costs
    error: float
    score: float


@dataclass(frozen=True)
class Row:
    """What a plan says of one weight, or of one module whose parameters are left alone.

    Args:
        name: of the module, or of the weight where a module has several (`rnn.weight_ih_l0`).
        kind: class of the module.
        shape: of its (largest) weight.
        format: chosen format, or None if it stays as it is.
        ranks: of the format.
        bits: of each stored number.
        dense: parameters of the module before.
        kept: parameters of the module after.
        error: relative error made on the weight, as estimated when planning; 0 if left alone.
        reason: why this was chosen, or why it was left alone, in words.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    format: str | None
    ranks: Ranks
    bits: int
    dense: int
    kept: int
    error: float
    reason: str


@dataclass(frozen=True)
class Plan:
    """What is kept of every module of a model, and what it amounts to.

    Args:
        rows: one for each module with parameters or weights, in the model's order.
        budget: that it was made for.
        dense: the model's total before, in every unit.
        kept: the model's total after, in every unit; never over the budget.
        scoring: what errors were scored on: "weights", "activations" or "fisher".
        notes: what a reader should know, such as estimates and defaults taken.
    """

    rows: tuple[Row, ...]
    budget: Budget
    dense: Costs
    kept: Costs
    scoring: str = "weights"
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, object]:
        """As the command line prints it with --json, and as `plan.json` holds it."""
        return {
            "version": PLAN_VERSION,
            "dense_parameters": self.dense.parameters,
            "kept_parameters": self.kept.parameters,
            "keep": self.budget.keep,
            "by": str(self.budget.unit),
            "also": {str(part.unit): part.keep for part in self.budget.parts[1:]},
            "dense": asdict(self.dense),
            "kept": asdict(self.kept),
            "scoring": self.scoring,
            "notes": list(self.notes),
            "layers": [asdict(row) for row in self.rows],
        }

    def rank_pattern(self) -> dict[str, int]:
        """Ranks of the weights written as svd, by name: `rank_pattern` of peft's `LoraConfig`."""
        return {row.name: row.ranks[0] for row in self.rows if row.format == "svd"}
