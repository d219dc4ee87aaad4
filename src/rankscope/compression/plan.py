"""A compression plan: plain data that says, for every weight, what is kept and why.

A model is read into `Site`s (one for each weight that could be written smaller, with the module
that holds it), every site gets a list of `Candidate`s, the solver picks one of each under one
`Budget`, and what it picked is a `Plan`; applied to the same model, it gives the compressed one.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from rankscope.display import Table, counted, fragment
from rankscope.errors import CompressionError, ModelFileError
from rankscope.factorize.formats.format import Ranks
from rankscope.strict_json import (
    Choice,
    Converted,
    Exactly,
    Integer,
    ListOf,
    Number,
    Object,
    Optional,
    Record,
    Text,
    Values,
    inside,
    read_as,
    read_document,
    shown,
)

PLAN_VERSION = 2  # of `plan.json`; in version 1 a multiply-add counted as one flop


class Unit(StrEnum):
    """The unit of a budget."""

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
    """Costs in every unit.

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
        format: name of the format, see `rankscope.factorize.formats`.
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
        scoring: what errors were scored on: "weights", "activations" or "loss".
        notes: what a reader should know, such as estimates and defaults taken.
    """

    rows: tuple[Row, ...]
    budget: Budget
    dense: Costs
    kept: Costs
    scoring: str = "weights"
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, object]:
        """Plain data, as the command line prints it with --json and `plan.json` holds it."""
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

    def __repr__(self) -> str:
        return f"<Plan: {self.summary}>"

    @property
    def summary(self) -> str:
        """How much is kept, and how many weights change, in one line."""
        changed = sum(row.kept != row.dense or row.format is not None for row in self.rows)
        share = self.kept.parameters / max(1, self.dense.parameters)
        return (
            f"keeps {self.kept.parameters:,} of {counted(self.dense.parameters, 'parameter')} "
            f"({share:.2%}); {changed:,} of {counted(len(self.rows), 'row')} changed"
        )

    def _repr_html_(self) -> str:
        return self.to_html("Plan")

    def to_html(self, title: str) -> str:
        """The plan as a piece of HTML for a notebook, under a title."""
        rows = [
            (
                row.name,
                " × ".join(f"{size:,}" for size in row.shape),
                row.format or "as it is",
                ", ".join(map(str, row.ranks)),
                f"{row.kept:,} of {row.dense:,}",
                f"{row.error:.3f}" if row.error else "",
                row.reason,
            )
            for row in self.rows
        ]
        head = ("weight", "shape", "format", "ranks", "parameters", "error", "why")
        facts = (f"Errors are scored on {self.scoring}.", *self.notes)
        return fragment(f"{title}: {self.summary}", facts, Table(head, rows, numbers=(4, 5)))


# --- `plan.json`: a plan as strict JSON, with the size and the hash of the weights beside it ------


PLAN_FILE = "plan.json"
WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True)
class WeightsChecksum:
    """Size and SHA-256 that the file of the weights must have."""

    num_bytes: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> "WeightsChecksum":
        """The checksum of a file's content."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class SavedPlan:
    """A plan, the weights that go with it, and the built-in network it was made for, if any."""

    plan: Plan
    checksum: WeightsChecksum
    built_in: str | None

    def to_json(self) -> bytes:
        """The content of `plan.json`.

        Raises:
            CompressionError: if the plan holds what JSON has no word for.
        """
        document = {
            **self.plan.to_dict(),
            "built_in": self.built_in,
            "weights": {
                "file": WEIGHTS_FILE,
                "bytes": self.checksum.num_bytes,
                "sha256": self.checksum.sha256,
            },
        }
        try:
            return json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"
        except (ValueError, TypeError) as error:
            raise CompressionError(
                f"The plan holds something that JSON has no word for: {error}."
            ) from error


def read_plan(path: Path) -> SavedPlan:
    """A plan from a file.

    Raises:
        ModelFileError: if the file cannot be read, or is not exactly what `to_json` writes.
    """
    document = _update_version(read_document(path))
    version = document.get("version", PLAN_VERSION)
    if not Exactly(PLAN_VERSION).fits(version):
        raise ModelFileError(
            f"{path} is no plan: versions 1 and {PLAN_VERSION} are read here, it has "
            f"{shown(version)}."
        )
    saved = read_as(
        Converted(_DOCUMENT, _saved_plan), document, who=f"{path} is no plan", error=ModelFileError
    )
    written = json.loads(saved.to_json())
    differing = [key for key in document if document[key] != written.get(key)]
    if differing:
        raise ModelFileError(
            f"{path} is no plan: {differing[0]} is {ascii(document[differing[0]])[:80]}, but the "
            f"rest makes it {ascii(written.get(differing[0]))[:80]}."
        )
    return saved


def _update_version(document: dict[str, Any]) -> dict[str, Any]:
    """A document of version 1 in the words of version 2: a multiply-add counts as two flops."""
    if document.get("version") != 1:
        return document
    document = {**document, "version": PLAN_VERSION}
    for total in ("dense", "kept"):
        costs = document.get(total)
        if isinstance(costs, dict) and _COUNT.fits(costs.get("flops")):
            document[total] = {**costs, "flops": 2 * costs["flops"]}
    return document


_COUNT = Integer(0, 2**63 - 1)
_RANKS = ListOf(_COUNT)
_ROW = Record(
    Row,
    {
        "name": Text(),
        "kind": Text(),
        "shape": _RANKS,
        "format": Optional(Text()),
        "ranks": _RANKS,
        "bits": _COUNT,
        "dense": _COUNT,
        "kept": _COUNT,
        "error": Number(),
        "reason": Text(),
    },
)
_COSTS = Object({"parameters": _COUNT, "flops": _COUNT, "bytes": _COUNT, "seconds": Number()})
_UNIT = Choice(tuple(Unit))
_PLAN: dict[str, Any] = {
    "version": Exactly(PLAN_VERSION),
    "dense_parameters": _COUNT,
    "kept_parameters": _COUNT,
    "keep": Number(),
    "by": _UNIT,
    "also": Values(Number(), at_most=1),
    "dense": _COSTS,
    "kept": _COSTS,
    "scoring": Text(),
    "notes": ListOf(Text()),
    "layers": ListOf(_ROW),
}
_DOCUMENT = Object(
    {
        **_PLAN,
        "built_in": Optional(Text()),
        "weights": Object({"file": Exactly(WEIGHTS_FILE), "bytes": _COUNT, "sha256": Text()}),
    },
    optional=("also",),  # plans written before there were second budgets have none
)


def plan_from_dict(document: object, *, who: str) -> Plan:
    """A plan from what `Plan.to_dict` gives.

    Raises:
        ModelFileError: if it is anything else; `who` begins the message.
    """
    fields = Object(_PLAN, optional=("also",))
    return read_as(Converted(fields, _plan), document, who=who, error=ModelFileError)


def _plan(fields: dict[str, Any]) -> Plan:
    second = None
    for unit, keep in fields.get("also", {}).items():
        second = Budget(keep, inside("also", _UNIT.read, unit))
    return Plan(
        rows=fields["layers"],
        budget=Budget(fields["keep"], fields["by"], second),
        dense=Costs(**fields["dense"]),
        kept=Costs(**fields["kept"]),
        scoring=fields["scoring"],
        notes=fields["notes"],
    )


def _saved_plan(fields: dict[str, Any]) -> SavedPlan:
    plan = _plan(fields)
    checksum = WeightsChecksum(fields["weights"]["bytes"], fields["weights"]["sha256"])
    return SavedPlan(plan, checksum, fields["built_in"])
