"""Diagrams, sums and networks as plain JSON data, and back, exactly.

A document is an object with `version`, `kind` ("diagram", "sum" or "network") and the fields of
that dataclass. Reading builds data only: nothing in a document is ever run.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.functions import Function
from rankscope.diagrams.network import (
    Argument,
    Box,
    Call,
    Constant,
    Drawable,
    Network,
    Reference,
    Step,
    Structure,
    Sum,
    Term,
    Word,
)
from rankscope.diagrams.parts import Convolution, Index, IndexKind, Node, Region, Role
from rankscope.diagrams.records import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    NUMBER_OR_TEXT,
    TEXT,
    Codec,
    choice,
    optional,
    pair,
    record,
    refusal,
    sequence,
)
from rankscope.errors import DiagramError

VERSION = 1
NAMES = sequence(TEXT)

INDEX = record(
    Index,
    {
        "name": TEXT,
        "size": optional(INTEGER),
        "symbol": optional(TEXT),
        "kind": choice(IndexKind),
        "label": optional(TEXT),
    },
)
NODE = record(
    Node,
    {
        "name": TEXT,
        "indices": NAMES,
        "role": choice(Role),
        "label": optional(TEXT),
        "array": optional(TEXT),
        "rows": optional(pair(INTEGER, INTEGER)),
        "is_one_hot": BOOLEAN,
        "narrow_side": optional(TEXT),
        "fill": NUMBER,
    },
)
CONVOLUTION = record(
    Convolution,
    {
        "name": TEXT,
        "input": TEXT,
        "kernel": TEXT,
        "output": TEXT,
        "stride": INTEGER,
        "padding": pair(INTEGER, INTEGER),
        "dilation": INTEGER,
        "padding_mode": TEXT,
    },
)
FUNCTION = record(Function, {"name": TEXT, "options": sequence(pair(TEXT, NUMBER_OR_TEXT))})
REGION = record(
    Region,
    {
        "name": TEXT,
        "members": NAMES,
        "function": FUNCTION,
        "over": NAMES,
        "scale": optional(TEXT),
        "causal": optional(pair(TEXT, TEXT)),
        "label": optional(TEXT),
    },
)
DIAGRAM = record(
    Diagram,
    {
        "name": TEXT,
        "indices": sequence(INDEX),
        "nodes": sequence(NODE),
        "output": NAMES,
        "convolutions": sequence(CONVOLUTION),
        "regions": sequence(REGION),
        "title": optional(TEXT),
    },
)
TERM = record(Term, {"diagram": DIAGRAM, "coefficient": NUMBER})
SUM = record(Sum, {"name": TEXT, "terms": sequence(TERM), "title": optional(TEXT)})


def _one_of(kinds: Mapping[str, tuple[type[Any], Codec]]) -> Codec:
    """An object whose key `kind` says which of several it is."""

    def write(value: Any) -> dict[str, Any]:
        kind = next(name for name, (holds, _) in kinds.items() if isinstance(value, holds))
        return {"kind": kind, **kinds[kind][1].write(value)}

    def read(data: Any, place: str) -> Any:
        if not isinstance(data, dict):
            raise refusal(place, "an object", data)
        kind = data.get("kind")
        if not isinstance(kind, str) or kind not in kinds:
            raise refusal(f"{place}.kind", f"one of {', '.join(kinds)}", kind)
        return kinds[kind][1].read({key: data[key] for key in data if key != "kind"}, place)

    return Codec(write, read)


SHAPE = sequence(INTEGER)
REFERENCE = record(Reference, {"node": TEXT, "shape": SHAPE})
WORD = record(Word, {"kind": TEXT, "text": TEXT})


def _write_argument(value: Argument) -> Any:
    if isinstance(value, Reference | Word):
        return (REFERENCE if isinstance(value, Reference) else WORD).write(value)
    if isinstance(value, tuple):
        return [_write_argument(each) for each in value]
    return NUMBER.write(value) if isinstance(value, float) else value


def _read_argument(data: Any, place: str) -> Argument:
    argument: Argument
    match data:
        case {"node": _}:
            argument = REFERENCE.read(data, place)
        case {"kind": _}:
            argument = WORD.read(data, place)
        case list() | tuple():
            argument = tuple(_read_argument(each, f"{place}[{at}]") for at, each in enumerate(data))
        case None | bool() | str():
            argument = data
        case int():
            argument = INTEGER.read(data, place)
        case _:
            argument = NUMBER.read(data, place)
    return argument


def _read_bytes(data: Any, place: str) -> bytes:
    try:
        return base64.b64decode(TEXT.read(data, place), validate=True)
    except binascii.Error:
        raise refusal(place, "bytes in base 64", data) from None


ARGUMENT = Codec(_write_argument, _read_argument)
BYTES = Codec(lambda value: base64.b64encode(value).decode(), _read_bytes)
CALL = record(
    Call,
    {
        "name": TEXT,
        "function": TEXT,
        "arguments": sequence(pair(TEXT, ARGUMENT)),
        "diagram": DIAGRAM,
        "shapes": sequence(SHAPE),
        "is_exact": BOOLEAN,
        "operations": INTEGER,
        "title": optional(TEXT),
    },
)


def _late(name: str) -> Codec:
    """A codec that is defined below what it is made of: a box holds steps, which may be boxes."""
    codec: Codec = globals()[name]
    return codec


STEPS = sequence(
    Codec(lambda step: _late("STEP").write(step), lambda data, at: _late("STEP").read(data, at))
)
BOX = record(
    Box,
    {
        "name": TEXT,
        "class_name": TEXT,
        "steps": STEPS,
        "diagram": DIAGRAM,
        "made": NAMES,
        "title": optional(TEXT),
    },
)
PARTS = sequence(
    Codec(
        lambda part: _late("STRUCTURE").write(part),
        lambda data, at: _late("STRUCTURE").read(data, at),
    )
)
STRUCTURE = record(Structure, {"kind": TEXT, "parts": PARTS, "keys": NAMES, "value": ARGUMENT})
CONSTANT = record(Constant, {"name": TEXT, "shape": SHAPE, "dtype": TEXT, "data": BYTES})

BODIES: dict[str, tuple[type[Any], Codec]] = {"diagram": (Diagram, DIAGRAM), "sum": (Sum, SUM)}
STEP = record(
    Step,
    {
        "name": TEXT,
        "body": _one_of(BODIES | {"call": (Call, CALL), "box": (Box, BOX)}),
        "label": optional(TEXT),
    },
)
NETWORK = record(
    Network,
    {
        "name": TEXT,
        "steps": sequence(STEP),
        "title": optional(TEXT),
        "inputs": NAMES,
        "input_shapes": sequence(SHAPE),
        "outputs": NAMES,
        "structure": optional(STRUCTURE),
        "constants": sequence(CONSTANT),
    },
)
DRAWABLE = _one_of(BODIES | {"network": (Network, NETWORK)})


def to_dict(drawable: Drawable) -> dict[str, Any]:
    """Write a diagram, sum or network as plain data: dicts, lists, strings, numbers, booleans.

    Example:
        >>> to_dict(Diagram("one", (Index("i", 2),), (Node("v", ("i",)),), ("i",)))["nodes"][0][
        ...     "indices"
        ... ]
        ['i']
    """
    written: dict[str, Any] = DRAWABLE.write(drawable)
    return {"version": VERSION, **written}


def from_dict(document: object) -> Drawable:
    """Read a diagram, sum or network from plain data, for example from `json.loads`.

    Raises:
        DiagramError: if a key, kind, value or version is not known, or parts do not fit together.
        SizeError: if a size is not a positive integer, or two sizes contradict each other.
    """
    if not isinstance(document, dict):
        raise refusal("its start", "an object", document)
    version = document.get("version")
    if isinstance(version, bool) or version != VERSION:
        raise DiagramError(
            f"Document, at version: wanted {VERSION}, got {version!r:.40}. "
            "Read it with the rankscope that wrote it."
        )
    rest = {key: value for key, value in document.items() if key != "version"}
    drawable: Drawable = DRAWABLE.read(rest, "document")
    return drawable
