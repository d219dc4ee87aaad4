"""A table of candidates as a file: computed once, then solved for any budget without the model."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from rankscope.compression.candidates import SiteCandidates
from rankscope.compression.choosing import CandidateTable
from rankscope.compression.plan import Candidate, Costs
from rankscope.compression.sites import Site, Uncompressed
from rankscope.errors import ModelFileError
from rankscope.factorize.formats.format import Window
from rankscope.files import write_atomically
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
    read_as,
    read_document,
)

VERSION = 1


def write_table(table: CandidateTable, path: Path) -> None:
    """Write a table; the numbers of the weights are not in it.

    Raises:
        OutputError: if the file cannot be written.
    """
    document = {
        "version": VERSION,
        "scoring": table.scoring,
        "dense": asdict(table.dense),
        "notes": list(table.notes),
        "entries": [_written(entry) for entry in table.entries],
    }
    write_atomically(path, json.dumps(document, separators=(",", ":"), allow_nan=False).encode())


def read_table(path: Path) -> CandidateTable:
    """A table from a file; its sites have weights without numbers, on the meta device.

    Raises:
        ModelFileError: if the file cannot be read, or is not what `write_table` writes.
    """
    return read_as(
        _TABLE, read_document(path), who=f"{path} is no table of candidates", error=ModelFileError
    )


def _written(entry: SiteCandidates | Uncompressed) -> dict[str, object]:
    if isinstance(entry, Uncompressed):
        return {"left": asdict(entry), "site": None, "candidates": [], "refusals": []}
    site = entry.site
    return {
        "left": None,
        "site": {
            "name": site.name,
            "module_name": site.module_name,
            "part": site.part,
            "kind": site.kind,
            "shape": list(site.weight.shape),
            "dtype": str(site.weight.dtype).removeprefix("torch."),
            "bias": site.bias,
            "beside": site.beside,
            "also": list(site.also),
        },
        "candidates": [asdict(candidate) for candidate in entry.candidates],
        "refusals": list(entry.refusals),
    }


_COUNT = Integer(0, 2**63 - 1)
_COSTS = Record(
    Costs, {"parameters": _COUNT, "flops": _COUNT, "bytes": _COUNT, "seconds": Number()}
)
_CANDIDATE = Record(
    Candidate,
    {
        "format": Optional(Text()),
        "ranks": ListOf(_COUNT),
        "bits": _COUNT,
        "costs": _COSTS,
        "error": Number(),
        "score": Number(),
    },
)
_LEFT = Record(
    Uncompressed,
    {
        "name": Text(),
        "kind": Text(),
        "shape": ListOf(_COUNT),
        "bits": _COUNT,
        "num_parameters": _COUNT,
        "reason": Text(),
    },
)
_SITE = Object(
    {
        "name": Text(),
        "module_name": Text(),
        "part": Text(),
        "kind": Text(),
        "shape": ListOf(Integer(1, 2**40), at_most=8),
        "dtype": Choice(("float64", "float32", "float16", "bfloat16")),
        "bias": _COUNT,
        "beside": _COUNT,
        "also": ListOf(Text()),
    }
)
_ENTRY = Object(
    {
        "left": Optional(_LEFT),
        "site": Optional(_SITE),
        "candidates": ListOf(_CANDIDATE),
        "refusals": ListOf(Text()),
    }
)


def _entry(fields: dict[str, Any]) -> SiteCandidates | Uncompressed:
    if fields["site"] is None:
        left: Uncompressed = fields["left"]
        return left
    site = dict(fields["site"])
    shape, dtype = site.pop("shape"), getattr(torch, site.pop("dtype"))
    weight = torch.empty(shape, dtype=dtype, device="meta")
    made = Site(**site, weight=weight, window=Window())
    return SiteCandidates(made, fields["candidates"], fields["refusals"])


def _table(fields: dict[str, Any]) -> CandidateTable:
    return CandidateTable(fields["entries"], fields["dense"], fields["notes"], fields["scoring"])


_TABLE = Converted(
    Object(
        {
            "version": Exactly(VERSION),
            "scoring": Text(),
            "dense": _COSTS,
            "notes": ListOf(Text()),
            "entries": ListOf(Converted(_ENTRY, _entry)),
        }
    ),
    _table,
)
