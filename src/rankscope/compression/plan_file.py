"""`plan.json`: a plan as strict JSON, with the size and the hash of the weights beside it.

It is read from strangers: every value is checked, and what is read must be written again as it was.
"""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from rankscope.auditing.sources.documents import read_document
from rankscope.compression.plan import PLAN_VERSION, Budget, Costs, Plan, Row, Unit
from rankscope.errors import CompressionError, ModelFileError

PLAN_FILE = "plan.json"
WEIGHTS_FILE = "model.safetensors"

_LARGEST = 2**63 - 1
_Record = TypeVar("_Record", Row, Costs)


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
    try:
        saved = _saved(document)
        written = json.loads(saved.to_json())
    except KeyError as error:
        raise ModelFileError(f"{path} is no plan: {error.args[0]!r} is missing.") from error
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"{path} is no plan: {error}") from error
    differing = [key for key in document if document[key] != written.get(key)]
    if differing:
        raise ModelFileError(
            f"{path} is no plan: {differing[0]} is {_shown(document[differing[0]])}, but the rest "
            f"makes it {_shown(written.get(differing[0]))}."
        )
    return saved


def _updated(document: dict[str, Any]) -> dict[str, Any]:
    """A document of version 1 in the words of version 2: a multiply-add counts as two flops."""
    if document.get("version") != 1:
        return document
    document = {**document, "version": PLAN_VERSION}
    for total in ("dense", "kept"):
        costs = document.get(total)
        if isinstance(costs, dict) and _is_integer(costs.get("flops")):
            document[total] = {**costs, "flops": 2 * costs["flops"]}
    return document


def _saved(document: dict[str, Any]) -> SavedPlan:
    version = document["version"]
    if version != PLAN_VERSION:
        raise ValueError(f"versions 1 and {PLAN_VERSION} are read here, it has {_shown(version)}.")
    plan = Plan(
        rows=tuple(
            _record(Row, row, f"layers[{at}]") for at, row in enumerate(_list(document["layers"]))
        ),
        budget=_budget(document),
        dense=_record(Costs, document["dense"], "dense"),
        kept=_record(Costs, document["kept"], "kept"),
        scoring=_checked(document["scoring"], str, "scoring"),
        notes=tuple(_checked(note, str, "notes") for note in _list(document["notes"])),
    )
    weights = document["weights"]
    if not isinstance(weights, dict):
        raise ValueError(f"weights must be an object, got {_shown(weights)}.")
    seal = WeightsSeal(
        _checked(weights["bytes"], int, "bytes"), _checked(weights["sha256"], str, "sha256")
    )
    return SavedPlan(plan, seal, _checked(document["built_in"], str | None, "built_in"))


def _budget(document: dict[str, Any]) -> Budget:
    others = document.get("also", {})  # plans written before there were second budgets have none
    if not isinstance(others, dict) or len(others) > 1:
        raise ValueError(f"also must be an object with at most 1 unit, got {_shown(others)}.")
    second = [Budget(_checked(keep, float, "also"), Unit(unit)) for unit, keep in others.items()]
    return Budget(
        _checked(document["keep"], float, "keep"),
        Unit(_checked(document["by"], str, "by")),
        second[0] if second else None,
    )


def _record(kind: type[_Record], data: Any, place: str) -> _Record:
    if not isinstance(data, dict):
        raise ValueError(f"{place} must be an object, got {_shown(data)}.")
    values = {
        field.name: _checked(data[field.name], field.type, f"{place}.{field.name}")
        for field in fields(kind)
    }
    return kind(**values)


def _checked(value: Any, kind: Any, place: str) -> Any:
    wanted, fits = _KINDS[kind]
    if not fits(value):
        raise ValueError(f"{place} must be {wanted}, got {_shown(value)}.")
    if kind is float:
        return float(value)
    return tuple(value) if isinstance(value, list) else value


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"layers and notes must be lists, got {_shown(data)}.")
    return data


def _is_integer(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("an integer from 0", _is_integer),
    float: ("a finite number", lambda v: type(v) in (int, float) and math.isfinite(v)),
    str: ("a string", lambda v: isinstance(v, str)),
    str | None: ("a string or null", lambda v: v is None or isinstance(v, str)),
    tuple[int, ...]: (
        "a list of integers from 0",
        lambda v: isinstance(v, list) and all(map(_is_integer, v)),
    ),
}


def _shown(value: Any) -> str:
    return ascii(value)[:80]
