"""JSON that is not trusted: plain data from a file, and readers that say what it must be.

`read_document` turns a file into plain data: its size and depth are bounded, and what two programs
could read in two ways (a key that stands twice, NaN) is refused. A `Reader` then checks plain data
and makes values of them. Readers are composed as the data are:

    >>> layer = Object({"name": Text(), "ranks": ListOf(Integer(low=1))})
    >>> layer.read({"name": "fc", "ranks": [3, 2]})
    {'name': 'fc', 'ranks': (3, 2)}
    >>> read_as(layer, {"name": "fc", "ranks": [3, 0]}, who="plan.json", error=ModelFileError)
    Traceback (most recent call last):
        ...
    rankscope.errors.ModelFileError: plan.json, at ranks[1]: wanted an integer from 1, got 0.

Nothing in a document is ever run, and every refusal is one line that names the place.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from rankscope.errors import DocumentError, ModelFileError, RankscopeError
from rankscope.files import plain_file

# The index of the largest models known has about 15 MB.
MAX_BYTES = 64_000_000
MAX_DEPTH = 100
# Up to here Python reads and prints an integer whatever its own limit is set to.
_MAX_DIGITS = 640
_CONTAINERS = (dict, list)
_SHOWN = 60  # characters of a value in a message, at most

T = TypeVar("T")
Word = TypeVar("Word", bound=str)


class Numbers(Enum):
    """Which numbers a document may hold."""

    INTEGERS = auto()
    FINITE = auto()
    ANY = auto()  # also NaN and the infinities, which other programs write though JSON has none


def read_document(
    path: Path | str,
    *,
    error: type[RankscopeError] = ModelFileError,
    max_bytes: int = MAX_BYTES,
    numbers: Numbers = Numbers.FINITE,
) -> dict[str, Any]:
    """Read the JSON object in a file.

    Raises:
        RankscopeError: of the class `error`, if the file cannot be read, is longer than
            `max_bytes`, or holds anything but one strict JSON object.
    """
    path = Path(path)
    with plain_file(path, error=error) as (file, size):
        if size > max_bytes:
            raise error(f"{path} has {size:,} bytes; a JSON file here has at most {max_bytes:,}.")
        data = file.read(max_bytes)
    return parse_document(data, who=str(path), error=error, numbers=numbers)


def parse_document(
    data: bytes,
    *,
    who: str,
    error: type[RankscopeError] = ModelFileError,
    numbers: Numbers = Numbers.FINITE,
) -> dict[str, Any]:
    """Read the JSON object in a text.

    Example:
        >>> parse_document(b'{"width": 64}', who="config.json")
        {'width': 64}

    Raises:
        RankscopeError: of the class `error`, if the text is no UTF-8, no JSON or no object, is
            nested more than 100 deep, repeats a key, or holds a number that is not allowed; the
            message starts with `who`.
    """
    parser = _Parser(numbers)
    try:
        document = parser.parse(data.decode("utf-8"))
    except RecursionError as reason:
        raise error(
            f"{who} is not usable JSON: it is nested too deeply, more than {MAX_DEPTH} levels."
        ) from reason
    except ValueError as reason:
        # Broken JSON, text that is not UTF-8, and what the parser refuses.
        raise error(f"{who} is not usable JSON: {reason}.") from reason
    if not isinstance(document, dict):
        raise error(f"{who} holds {shown(document)}; wanted a JSON object.")
    return document


@dataclass(frozen=True)
class _Repeated:
    """Stands for an object in which a key stands twice, until its place is known."""

    key: str


class _Parser:
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._has_repeats = False

    def parse(self, text: str) -> Any:
        document = json.loads(
            text,
            object_pairs_hook=self._object,
            parse_int=_integer,
            parse_float=self._float,
            parse_constant=self._constant,
        )
        if self._has_repeats:
            place, key = next(_repeats(document))
            raise ValueError(f"the key {shown(key)} stands twice in one object, at {dotted(place)}")
        _require_depth(document)
        return document

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Repeated:
        document = dict(pairs)
        if len(document) == len(pairs):
            return document
        self._has_repeats = True
        keys = [key for key, _ in pairs]
        return next(_Repeated(key) for at, key in enumerate(keys) if key in keys[:at])

    def _float(self, text: str) -> float:
        if self._numbers is Numbers.INTEGERS:
            self._refuse(text)
        value = float(text)
        return value if math.isfinite(value) else self._constant(text)

    def _constant(self, text: str) -> float:
        return float(text) if self._numbers is Numbers.ANY else self._refuse(text)

    def _refuse(self, text: str) -> NoReturn:
        wanted = "integers" if self._numbers is Numbers.INTEGERS else "finite numbers"
        raise ValueError(f"only {wanted} are allowed, got {text[:_SHOWN]}")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"an integer has {len(text):,} digits, at most {_MAX_DIGITS} are read")
    return int(text)


def _require_depth(document: Any) -> None:
    level = [document] if isinstance(document, dict | list) else []
    for _ in range(MAX_DEPTH):
        values = (value.values() if type(value) is dict else value for value in level)
        level = [item for inner in values for item in inner if type(item) in _CONTAINERS]
    if level:
        raise RecursionError


def _repeats(document: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Places of objects in which a key stands twice, and that key."""
    pending: list[tuple[tuple[str | int, ...], Any]] = [((), document)]
    while pending:
        place, value = pending.pop()
        if isinstance(value, _Repeated):
            yield place, value.key
        items = value.items() if isinstance(value, dict) else ()
        for key, item in enumerate(value) if isinstance(value, list) else items:
            if isinstance(item, dict | list | _Repeated):
                pending.append(((*place, key), item))


def shown(value: object) -> str:  # noqa: PLR0911 - one for each kind of data
    r"""Describe a value in a message: short, in one line, whatever it is.

    Example:
        >>> shown("a\nb"), shown([1, 2, 3]), shown({}), shown(10**5000)
        ("'a\\nb'", 'a list of 3', 'an object with 0 keys', 'an integer of 16,610 bits')
    """
    if isinstance(value, str):
        # Cut before it is written out: the text may have millions of characters.
        text = ascii(value[: _SHOWN + 1])
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return f"an object with {len(value)} keys"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length():,} bits"
    return repr(value) if isinstance(value, int | float | None) else f"a {type(value).__name__}"


def dotted(place: tuple[str | int, ...]) -> str:
    """Write a place as a path.

    Example:
        >>> dotted(("layers", 0, "ranks")), dotted(())
        ('layers[0].ranks', 'top')
    """
    text = ""
    for key in place:
        name = f"[{key}]" if isinstance(key, int) else f".{ascii(key)[1:-1][:_SHOWN]}"
        text += name
    return text.removeprefix(".") or "top"


class Reader(ABC, Generic[T]):
    """Makes a value of plain data, or refuses them; `str` of it says what is wanted."""

    @abstractmethod
    def read(self, data: Any) -> T:
        """Make the value.

        Raises:
            DocumentError: if the data are anything else.
        """

    def write(self, value: T) -> Any:
        """Turn a value back into plain data."""
        return value

    def fits(self, data: object) -> bool:
        """Whether data can be read."""
        try:
            self.read(data)
        except DocumentError:
            return False
        return True

    def refusal(self, got: object) -> DocumentError:
        """The error for data that are not what is wanted."""
        return refusal(self, got)


def refusal(wanted: object, got: object) -> DocumentError:
    """The error for data that are not what is wanted."""
    return DocumentError(f"wanted {wanted}, got {shown(got)}")


def read_as(reader: Reader[T], data: object, *, who: str, error: type[RankscopeError]) -> T:
    """Read plain data, and say whose they are if they are refused.

    Raises:
        RankscopeError: of the class `error`: "who, at place: wanted …, got …."
    """
    try:
        return reader.read(data)
    except DocumentError as refused:
        raise error(f"{who}, at {dotted(refused.place)}: {refused}.") from refused


def inside(key: str | int, read: Callable[[Any], T], data: Any) -> T:
    """Read a part of a document; a refusal in there names `key` as its place."""
    try:
        return read(data)
    except DocumentError as refused:
        refused.place = (key, *refused.place)
        raise


@dataclass(frozen=True)
class Integer(Reader[int]):
    """An integer, both ends of its range included; true and false are none."""

    low: int | None = None
    high: int | None = None

    def read(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            raise self.refusal(data)
        if (self.low is not None and data < self.low) or (
            self.high is not None and data > self.high
        ):
            raise self.refusal(data)
        return data

    def __str__(self) -> str:
        if self.high is not None:
            return f"an integer in {'' if self.low is None else self.low}..{self.high}"
        return "an integer" if self.low is None else f"an integer from {self.low}"


@dataclass(frozen=True)
class Number(Reader[float]):
    """A finite number."""

    def read(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            raise self.refusal(data)
        try:
            value = float(data)
        except OverflowError:
            raise self.refusal(data) from None
        if not math.isfinite(value):
            raise self.refusal(data)
        return value

    def __str__(self) -> str:
        return "a finite number"


@dataclass(frozen=True)
class Flag(Reader[bool]):
    """True or false."""

    def read(self, data: Any) -> bool:
        if not isinstance(data, bool):
            raise self.refusal(data)
        return data

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class Text(Reader[str]):
    """A string."""

    def read(self, data: Any) -> str:
        if not isinstance(data, str):
            raise self.refusal(data)
        return data

    def __str__(self) -> str:
        return "a string"


@dataclass(frozen=True)
class Exactly(Reader[T]):
    """One value, of the same type."""

    value: T

    def read(self, data: Any) -> T:
        if type(data) is not type(self.value) or data != self.value:
            raise self.refusal(data)
        return self.value

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Choice(Reader[Word]):
    """One of a few words, or the member of an enumeration of words that has this value."""

    options: tuple[Word, ...]

    def read(self, data: Any) -> Word:
        if isinstance(data, str):
            for option in self.options:
                if option == data:
                    return option
        raise self.refusal(data)

    def write(self, value: Word) -> str:
        return str(value)

    def __str__(self) -> str:
        return f"one of {', '.join(self.options)}"


@dataclass(frozen=True)
class Optional(Reader[T | None]):
    """Something, or null."""

    something: Reader[T]

    def read(self, data: Any) -> T | None:
        if data is None:
            return None
        try:
            return self.something.read(data)
        except DocumentError as refused:
            # Inside a list or an object, the refusal knows better what is wrong.
            if refused.place or isinstance(data, dict | list | tuple):
                raise
            raise self.refusal(data) from refused

    def write(self, value: T | None) -> Any:
        return None if value is None else self.something.write(value)

    def __str__(self) -> str:
        return f"{self.something} or null"


@dataclass(frozen=True)
class Either(Reader[Any]):
    """Reads what one of two readers accepts; neither changes what it reads."""

    first: Reader[Any]
    second: Reader[Any]

    def read(self, data: Any) -> Any:
        for reader in (self.first, self.second):
            if reader.fits(data):
                return reader.read(data)
        raise self.refusal(data)

    def __str__(self) -> str:
        return f"{self.first}, or {self.second}"


@dataclass(frozen=True)
class ListOf(Reader[tuple[T, ...]]):
    """A list of one kind, as a tuple; not longer than `at_most`."""

    item: Reader[T]
    at_most: int | None = None

    def read(self, data: Any) -> tuple[T, ...]:
        is_list = isinstance(data, list | tuple)
        if not is_list or (self.at_most is not None and len(data) > self.at_most):
            raise self.refusal(data)
        values: list[T] = []
        try:
            for entry in data:
                values.append(self.item.read(entry))
        except DocumentError as refused:
            refused.place = (len(values), *refused.place)
            raise
        return tuple(values)

    def write(self, value: tuple[T, ...]) -> list[Any]:
        return [self.item.write(entry) for entry in value]

    def __str__(self) -> str:
        length = "" if self.at_most is None else f" of at most {self.at_most}"
        return f"a list{length}, each {self.item}"


@dataclass(frozen=True)
class Pair(Reader[tuple[Any, Any]]):
    """A list of two, each of its own kind."""

    first: Reader[Any]
    second: Reader[Any]

    def read(self, data: Any) -> tuple[Any, Any]:
        if not isinstance(data, list | tuple) or len(data) != 2:
            raise self.refusal(data)
        return (inside(0, self.first.read, data[0]), inside(1, self.second.read, data[1]))

    def write(self, value: tuple[Any, Any]) -> list[Any]:
        return [self.first.write(value[0]), self.second.write(value[1])]

    def __str__(self) -> str:
        return "a list of two"


@dataclass(frozen=True)
class Converted(Reader[T]):
    """Applies a function to what a reader reads.

    Args:
        parts: reads the data.
        make: gives the value, or refuses with DocumentError.
        unmake: gives back what `make` was given, to be written; None if it is the value itself.
    """

    parts: Reader[Any]
    make: Callable[[Any], T]
    unmake: Callable[[T], Any] | None = None

    def read(self, data: Any) -> T:
        return self.make(self.parts.read(data))

    def write(self, value: T) -> Any:
        return self.parts.write(value if self.unmake is None else self.unmake(value))

    def __str__(self) -> str:
        return str(self.parts)


@dataclass(frozen=True)
class Anything(Reader[Any]):
    """Plain data of any kind, to be read later."""

    def read(self, data: Any) -> Any:
        return data

    def __str__(self) -> str:
        return "anything"


@dataclass(frozen=True)
class Values(Reader[dict[str, T]]):
    """An object of any keys, at most so many, whose values are all of one kind."""

    item: Reader[T]
    at_most: int

    def read(self, data: Any) -> dict[str, T]:
        if not isinstance(data, dict) or len(data) > self.at_most:
            raise self.refusal(data)
        return {key: inside(key, self.item.read, value) for key, value in data.items()}

    def __str__(self) -> str:
        return f"an object with at most {self.at_most} keys"


@dataclass(frozen=True)
class Object(Reader[dict[str, Any]]):
    """An object with these keys and no others.

    Args:
        parts: a reader for each key.
        optional: keys that may be left out.
    """

    parts: Mapping[str, Reader[Any]]
    optional: Collection[str] = ()

    def read(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise self.refusal(data)
        for key in data:
            if key not in self.parts:
                raise refusal(f"only the keys {', '.join(self.parts)}", key)
        missing = [key for key in self.parts if key not in data and key not in self.optional]
        if missing:
            raise DocumentError(
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            )
        return {key: inside(key, self.parts[key].read, value) for key, value in data.items()}

    def __str__(self) -> str:
        return f"an object with {', '.join(self.parts)}"


@dataclass(frozen=True)
class Record(Reader[T]):
    """A dataclass as an object; fields that have a default may be left out.

    Args:
        kind: the dataclass.
        parts: a reader for each field.
    """

    kind: Callable[..., T]
    parts: Mapping[str, Reader[Any]]

    @cached_property
    def as_object(self) -> Object:
        """What the plain data must hold."""
        optional = {
            field.name
            for field in fields(self.kind)  # type: ignore[arg-type]
            if field.default is not MISSING or field.default_factory is not MISSING
        }
        return Object(self.parts, optional)

    def read(self, data: Any) -> T:
        return self.kind(**self.as_object.read(data))

    def write(self, value: T) -> dict[str, Any]:
        return {name: part.write(getattr(value, name)) for name, part in self.parts.items()}

    def __str__(self) -> str:
        return str(self.as_object)


@dataclass(frozen=True)
class Tagged(Reader[Any]):
    """An object of one of several kinds, which the word at `key` names.

    Args:
        key: of the word.
        kinds: the reader of the other keys, for each word.

    Example:
        >>> shape = Tagged("kind", {"dot": Object({}), "box": Object({"size": Integer(1)})})
        >>> shape.read({"kind": "box", "size": 3})
        {'size': 3}
    """

    key: str
    kinds: Mapping[str, Reader[Any]]

    def read(self, data: Any) -> Any:
        if not isinstance(data, dict) or data.get(self.key) not in list(self.kinds):
            raise self.refusal(data)
        rest = {key: value for key, value in data.items() if key != self.key}
        return self.kinds[data[self.key]].read(rest)

    def __str__(self) -> str:
        return f"an object whose {self.key!r} is one of {', '.join(self.kinds)}"
