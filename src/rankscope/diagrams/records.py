"""Plain data in and out, field by field: what may stand in a document, and what is refused.

A codec turns one kind of value into plain JSON and back. Reading trusts nothing: whatever is not
as it should be is a `DiagramError` that names the place in the document.
"""

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Any

from rankscope.errors import DiagramError

LARGEST_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class Codec:
    """How to write a value as plain data, and how to read it from there (data, place)."""

    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


def refusal(place: str, wanted: str, got: object) -> DiagramError:
    """The error for something that does not belong where it is found."""
    shown = repr(got) if isinstance(got, str | bool | None) else f"a {type(got).__name__}"
    if len(shown) > 80:
        shown = f"{shown[:76]}…"
    return DiagramError(f"Document, at {place}: wanted {wanted}, got {shown}.")


def _read_text(data: Any, place: str) -> str:
    if not isinstance(data, str):
        raise refusal(place, "a string", data)
    return data


def _read_boolean(data: Any, place: str) -> bool:
    if not isinstance(data, bool):
        raise refusal(place, "true or false", data)
    return data


def _read_integer(data: Any, place: str) -> int:
    if isinstance(data, bool) or not isinstance(data, int):
        raise refusal(place, "an integer", data)
    if abs(data) > LARGEST_INTEGER:
        raise DiagramError(f"Document, at {place}: the integer is beyond ±{LARGEST_INTEGER}.")
    return data


def _write_number(value: float) -> Any:
    # JSON has no infinities; a string could be mistaken for an option that is a string.
    return value if math.isfinite(value) else {"float": str(float(value))}


def _read_number(data: Any, place: str) -> float:
    if isinstance(data, dict) and list(data) == ["float"]:
        if data["float"] in ("inf", "-inf", "nan"):
            return float(data["float"])
        raise refusal(f"{place}.float", "'inf', '-inf' or 'nan'", data["float"])
    if isinstance(data, float) and math.isfinite(data):
        return data
    if isinstance(data, int) and not isinstance(data, bool):
        return float(_read_integer(data, place))
    raise refusal(place, "a finite number", data)


def _read_number_or_text(data: Any, place: str) -> float | str:
    return data if isinstance(data, str) else _read_number(data, place)


def _same(value: Any) -> Any:
    return value


TEXT = Codec(_same, _read_text)
BOOLEAN = Codec(_same, _read_boolean)
INTEGER = Codec(_same, _read_integer)
NUMBER = Codec(_write_number, _read_number)
NUMBER_OR_TEXT = Codec(
    lambda value: value if isinstance(value, str) else _write_number(value), _read_number_or_text
)


def optional(codec: Codec) -> Codec:
    """A value, or null."""
    return Codec(
        lambda value: None if value is None else codec.write(value),
        lambda data, place: None if data is None else codec.read(data, place),
    )


def sequence(codec: Codec) -> Codec:
    """A list of any length."""

    def read(data: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(data, list | tuple):
            raise refusal(place, "a list", data)
        return tuple(codec.read(item, f"{place}[{at}]") for at, item in enumerate(data))

    return Codec(lambda values: [codec.write(value) for value in values], read)


def pair(first: Codec, second: Codec) -> Codec:
    """A list of two."""

    def read(data: Any, place: str) -> tuple[Any, Any]:
        if not isinstance(data, list | tuple):
            raise refusal(place, "a list of two", data)
        if len(data) != 2:
            raise DiagramError(f"Document, at {place}: wanted a list of two, got {len(data)}.")
        return (first.read(data[0], f"{place}[0]"), second.read(data[1], f"{place}[1]"))

    return Codec(lambda values: [first.write(values[0]), second.write(values[1])], read)


def choice(names: type[StrEnum]) -> Codec:
    """One of the values of an enumeration."""
    known = [name.value for name in names]

    def read(data: Any, place: str) -> StrEnum:
        if not isinstance(data, str) or data not in known:
            raise refusal(place, f"one of {', '.join(known)}", data)
        return names(data)

    return Codec(lambda value: value.value, read)


def record(kind: type[Any], parts: dict[str, Codec]) -> Codec:
    """A dataclass as an object; fields that have a default may be left out, others may not be in.

    `parts` has a codec for every field, which a test checks.
    """
    needed = [
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    ]

    def read(data: Any, place: str) -> Any:
        checked = read_object(data, place, known=list(parts), needed=needed)
        return kind(
            **{name: parts[name].read(value, f"{place}.{name}") for name, value in checked.items()}
        )

    return Codec(
        lambda value: {name: codec.write(getattr(value, name)) for name, codec in parts.items()},
        read,
    )


def read_object(data: Any, place: str, *, known: list[str], needed: list[str]) -> dict[str, Any]:
    """An object that has every needed key, and no unknown one.

    Raises:
        DiagramError: otherwise.
    """
    if not isinstance(data, dict):
        raise refusal(place, "an object", data)
    for key in data:
        if key not in known:
            raise refusal(place, f"only the keys {', '.join(known)}", key)
    missing = [key for key in needed if key not in data]
    if missing:
        raise DiagramError(f"Document, at {place}: the keys {', '.join(missing)} are missing.")
    return data
