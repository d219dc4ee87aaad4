"""`plan.json`: a plan as strict JSON, with the size and the hash of the weights beside it.

It is read from strangers: every value is checked, and what is read must be written again as it was.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.compression.plan import PLAN_VERSION, Budget, Costs, Plan, Row, Unit
from rankscope.errors import CompressionError, ModelFileError
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

PLAN_FILE = "plan.json"
WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True)
class WeightsSeal:
    """What the file with the weights must be."""

    num_bytes: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> "WeightsSeal":
        """The seal of a file's content."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class SavedPlan:
    """A plan, the weights that go with it, and the built-in network it was made for, if any."""

    plan: Plan
    seal: WeightsSeal
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
                "bytes": self.seal.num_bytes,
                "sha256": self.seal.sha256,
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
    document = _updated(read_document(path))
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


def _updated(document: dict[str, Any]) -> dict[str, Any]:
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
_DOCUMENT = Object(
    {
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
        "built_in": Optional(Text()),
        "weights": Object({"file": Exactly(WEIGHTS_FILE), "bytes": _COUNT, "sha256": Text()}),
    },
    optional=("also",),  # plans written before there were second budgets have none
)


def _saved_plan(fields: dict[str, Any]) -> SavedPlan:
    second = None
    for unit, keep in fields.get("also", {}).items():
        second = Budget(keep, inside("also", _UNIT.read, unit))
    plan = Plan(
        rows=fields["layers"],
        budget=Budget(fields["keep"], fields["by"], second),
        dense=Costs(**fields["dense"]),
        kept=Costs(**fields["kept"]),
        scoring=fields["scoring"],
        notes=fields["notes"],
    )
    seal = WeightsSeal(fields["weights"]["bytes"], fields["weights"]["sha256"])
    return SavedPlan(plan, seal, fields["built_in"])
