"""Diagrams, sums and networks as plain JSON data, and back, exactly.

A document is an object with `version`, `kind` ("diagram", "sum" or "network") and the fields of
that dataclass. Reading builds data only: nothing in a document is ever run.
"""

import base64
import binascii
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankscope.diagrams.diagram import Diagram
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
from rankscope.diagrams.parts import Convolution, Function, Index, IndexKind, Node, Region, Role
from rankscope.errors import DiagramError
from rankscope.strict_json import (
    Choice,
    Converted,
    Exactly,
    Flag,
    Integer,
    ListOf,
    Number,
    Optional,
    Pair,
    Reader,
    Record,
    Text,
    inside,
    read_as,
    refusal,
    shown,
)

VERSION = 1
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class _Float(Reader[float]):
    """A number; JSON has no infinities, so that they are written as `{"float": "inf"}`.

    A string alone could be mistaken for an option that is a string.
    """

    def read(self, data: Any) -> float:
        if isinstance(data, dict) and list(data) == ["float"]:
            return float(inside("float", Choice(("inf", "-inf", "nan")).read, data["float"]))
        return Number().read(data)

    def write(self, value: float) -> Any:
        return value if math.isfinite(value) else {"float": str(float(value))}

    def __str__(self) -> str:
        return str(Number())


@dataclass(frozen=True)
class _FloatOrText(Reader[float | str]):
    """A string, or a number."""

    def read(self, data: Any) -> float | str:
        return data if isinstance(data, str) else _Float().read(data)

    def write(self, value: float | str) -> Any:
        return value if isinstance(value, str) else _Float().write(value)

    def __str__(self) -> str:
        return "a string or a finite number"


TEXT, INTEGER, NUMBER = Text(), Integer(-_LARGEST, _LARGEST), _Float()
NAMES = ListOf(TEXT)

INDEX = Record(
    Index,
    {
        "name": TEXT,
        "size": Optional(INTEGER),
        "symbol": Optional(TEXT),
        "kind": Choice(tuple(IndexKind)),
        "label": Optional(TEXT),
    },
)
NODE = Record(
    Node,
    {
        "name": TEXT,
        "indices": NAMES,
        "role": Choice(tuple(Role)),
        "label": Optional(TEXT),
        "array": Optional(TEXT),
        "rows": Optional(Pair(INTEGER, INTEGER)),
        "is_one_hot": Flag(),
        "narrow_side": Optional(TEXT),
        "fill": NUMBER,
    },
)
CONVOLUTION = Record(
    Convolution,
    {
        "name": TEXT,
        "input": TEXT,
        "kernel": TEXT,
        "output": TEXT,
        "stride": INTEGER,
        "padding": Pair(INTEGER, INTEGER),
        "dilation": INTEGER,
        "padding_mode": TEXT,
    },
)
FUNCTION = Record(Function, {"name": TEXT, "options": ListOf(Pair(TEXT, _FloatOrText()))})
REGION = Record(
    Region,
    {
        "name": TEXT,
        "members": NAMES,
        "function": FUNCTION,
        "over": NAMES,
        "scale": Optional(TEXT),
        "causal": Optional(Pair(TEXT, TEXT)),
        "label": Optional(TEXT),
    },
)
DIAGRAM = Record(
    Diagram,
    {
        "name": TEXT,
        "indices": ListOf(INDEX),
        "nodes": ListOf(NODE),
        "output": NAMES,
        "convolutions": ListOf(CONVOLUTION),
        "regions": ListOf(REGION),
        "title": Optional(TEXT),
    },
)
TERM = Record(Term, {"diagram": DIAGRAM, "coefficient": NUMBER})
SUM = Record(Sum, {"name": TEXT, "terms": ListOf(TERM), "title": Optional(TEXT)})


@dataclass(frozen=True)
class _OneOf(Reader[Any]):
    """An object whose key `kind` says which of several it is."""

    kinds: Mapping[str, tuple[type[Any], Reader[Any]]]

    def read(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise self.refusal(data)
        kind = inside("kind", Choice(tuple(self.kinds)).read, data.get("kind"))
        return self.kinds[kind][1].read({key: data[key] for key in data if key != "kind"})

    def write(self, value: Any) -> dict[str, Any]:
        kind = next(name for name, (holds, _) in self.kinds.items() if isinstance(value, holds))
        return {"kind": kind, **self.kinds[kind][1].write(value)}

    def __str__(self) -> str:
        return f"an object whose kind is one of {', '.join(self.kinds)}"


@dataclass(frozen=True)
class _Argument(Reader[Argument]):
    """An argument of a call: a reference, a word, a plain value, or lists of these."""

    def read(self, data: Any) -> Argument:
        argument: Argument
        match data:
            case {"node": _}:
                argument = REFERENCE.read(data)
            case {"kind": _}:
                argument = WORD.read(data)
            case list() | tuple():
                argument = ListOf(self).read(data)
            case None | bool() | str():
                argument = data
            case int():
                argument = INTEGER.read(data)
            case _:
                argument = NUMBER.read(data)
        return argument

    def write(self, value: Argument) -> Any:
        if isinstance(value, Reference):
            return REFERENCE.write(value)
        if isinstance(value, Word):
            return WORD.write(value)
        if isinstance(value, tuple):
            return ListOf(self).write(value)
        return NUMBER.write(value) if isinstance(value, float) else value

    def __str__(self) -> str:
        return "an argument"


@dataclass(frozen=True)
class _Later(Reader[Any]):
    """A reader that is defined below what it is made of: a box holds steps, which may be boxes."""

    name: str

    @property
    def _reader(self) -> Reader[Any]:
        reader: Reader[Any] = globals()[self.name]
        return reader

    def read(self, data: Any) -> Any:
        return self._reader.read(data)

    def write(self, value: Any) -> Any:
        return self._reader.write(value)

    def __str__(self) -> str:
        return f"a {self.name.lower()}"


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise refusal("bytes in base 64", text) from None


SHAPE = ListOf(INTEGER)
REFERENCE = Record(Reference, {"node": TEXT, "shape": SHAPE})
WORD = Record(Word, {"kind": TEXT, "text": TEXT})
ARGUMENT = _Argument()
BYTES = Converted(TEXT, _bytes, lambda value: base64.b64encode(value).decode())
CALL = Record(
    Call,
    {
        "name": TEXT,
        "function": TEXT,
        "arguments": ListOf(Pair(TEXT, ARGUMENT)),
        "diagram": DIAGRAM,
        "shapes": ListOf(SHAPE),
        "is_exact": Flag(),
        "operations": INTEGER,
        "title": Optional(TEXT),
        "equations": ListOf(TEXT),
    },
)
STEPS = ListOf(_Later("STEP"))
BOX = Record(
    Box,
    {
        "name": TEXT,
        "class_name": TEXT,
        "steps": STEPS,
        "diagram": DIAGRAM,
        "made": NAMES,
        "title": Optional(TEXT),
    },
)
PARTS = ListOf(_Later("STRUCTURE"))
STRUCTURE = Record(Structure, {"kind": TEXT, "parts": PARTS, "keys": NAMES, "value": ARGUMENT})
CONSTANT = Record(Constant, {"name": TEXT, "shape": SHAPE, "dtype": TEXT, "data": BYTES})

BODIES: dict[str, tuple[type[Any], Reader[Any]]] = {
    "diagram": (Diagram, DIAGRAM),
    "sum": (Sum, SUM),
}
STEP = Record(
    Step,
    {
        "name": TEXT,
        "body": _OneOf(BODIES | {"call": (Call, CALL), "box": (Box, BOX)}),
        "label": Optional(TEXT),
    },
)
NETWORK = Record(
    Network,
    {
        "name": TEXT,
        "steps": ListOf(STEP),
        "title": Optional(TEXT),
        "inputs": NAMES,
        "input_shapes": ListOf(SHAPE),
        "outputs": NAMES,
        "structure": Optional(STRUCTURE),
        "constants": ListOf(CONSTANT),
    },
)
DRAWABLE = _OneOf(BODIES | {"network": (Network, NETWORK)})


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
    version = document.get("version") if isinstance(document, dict) else VERSION
    if not Exactly(VERSION).fits(version):
        raise DiagramError(
            f"Document, at version: wanted {VERSION}, got {shown(version)}. "
            "Read it with the rankscope that wrote it."
        )
    if isinstance(document, dict):
        document = {key: value for key, value in document.items() if key != "version"}
    drawable: Drawable = read_as(DRAWABLE, document, who="Document", error=DiagramError)
    return drawable
