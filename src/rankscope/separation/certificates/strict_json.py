"""JSON from strangers: what is not exactly as it should be is refused, and nothing is executed."""

import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from rankscope.errors import CertificateError

_SHOWN = 60  # characters of what was found, at most


def read_json(path: Path | str, *, max_bytes: int) -> Any:
    """The content of a file as plain data, without floats and repeated keys.

    Raises:
        CertificateError: if the file cannot be read, is too large, or holds anything else.
    """
    return parse_json(_read_bytes(path, max_bytes), name=str(path))


def parse_json(data: bytes, *, name: str) -> Any:
    """Plain data from UTF-8 text: objects, lists, strings, integers, true, false and null.

    Example:
        >>> parse_json(b'{"a": [1, null]}', name="example")
        {'a': [1, None]}

    Raises:
        CertificateError: if the text is anything else.
    """
    try:
        return json.loads(
            data.decode("utf-8"),
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
            object_pairs_hook=_without_repeats,
        )
    except RecursionError as error:
        raise CertificateError(f"{name} is no certificate: it is nested too deeply.") from error
    except CertificateError:
        raise
    except ValueError as error:
        # Broken JSON, text that is not UTF-8, or an integer of thousands of digits.
        raise CertificateError(f"{name} is no certificate: {error}.") from error


def _refuse_number(text: str) -> NoReturn:
    raise CertificateError(f"Certificate: only integers are allowed, got {text[:_SHOWN]}.")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise CertificateError(
            f"Certificate: an object has {len(pairs)} keys, {len(found)} of them different."
        )
    return found


def _read_bytes(path: Path | str, max_bytes: int) -> bytes:
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise CertificateError(f"{path} is no certificate: wanted a file, got something else.")
        with Path(path).open("rb") as file:
            data = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, CertificateError):
            raise
        # ValueError is what Python raises for a path with a null character.
        reason = getattr(error, "strerror", None) or str(error)
        raise CertificateError(f"Cannot read {str(path)!r}: {reason}.") from error
    if len(data) > max_bytes:
        raise CertificateError(f"{path} is no certificate: it is longer than {max_bytes:,} bytes.")
    return data


def refusal(place: str, wanted: str, got: object) -> CertificateError:
    """The error for something that does not belong where it is found."""
    shown = f"a {type(got).__name__}"
    if isinstance(got, str | int | None):
        shown = ascii(got[:_SHOWN] if isinstance(got, str) else got)
    elif isinstance(got, list):
        shown = f"a list of {len(got)}"
    return CertificateError(f"Certificate, at {place}: wanted {wanted}, got {shown[:_SHOWN]}.")


def read_object(data: Any, place: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """An object with exactly these keys.

    Raises:
        CertificateError: otherwise.
    """
    if not isinstance(data, dict):
        raise refusal(place, f"an object with {', '.join(keys)}", data)
    for key in data:
        if key not in keys:
            raise refusal(place, f"only the keys {', '.join(keys)}", key)
    missing = [key for key in keys if key not in data]
    if missing:
        raise CertificateError(f"Certificate, at {place}: {', '.join(missing)} is missing.")
    return data


def read_list(data: Any, place: str, *, at_most: int) -> list[Any]:
    """A list that is not too long.

    Raises:
        CertificateError: otherwise.
    """
    if not isinstance(data, list) or len(data) > at_most:
        raise refusal(place, f"a list of at most {at_most}", data)
    return data


def read_text(data: Any, place: str) -> str:
    """A string.

    Raises:
        CertificateError: otherwise.
    """
    if not isinstance(data, str):
        raise refusal(place, "a string", data)
    return data


def read_integer(data: Any, place: str, *, low: int, high: int) -> int:
    """An integer in low..high; true and false are none.

    Raises:
        CertificateError: otherwise.
    """
    if isinstance(data, bool) or not isinstance(data, int) or not low <= data <= high:
        raise refusal(place, f"an integer in {low}..{high}", data)
    return data


def read_integers(data: Any, place: str, *, at_most: int, high: int) -> tuple[int, ...]:
    """A list of integers in 0..high, ascending.

    Raises:
        CertificateError: otherwise.
    """
    items = read_list(data, place, at_most=at_most)
    numbers = tuple(
        read_integer(item, f"{place}[{at}]", low=0, high=high) for at, item in enumerate(items)
    )
    if list(numbers) != sorted(set(numbers)):
        raise CertificateError(f"Certificate, at {place}: wanted numbers in ascending order.")
    return numbers


def read_values(
    data: Any, place: str, read: Callable[[Any, str], Any], *, at_most: int
) -> Mapping[str, Any]:
    """An object of any keys, whose values are all of one kind.

    Raises:
        CertificateError: otherwise.
    """
    if not isinstance(data, dict) or len(data) > at_most:
        raise refusal(place, f"an object with at most {at_most} keys", data)
    return {key: read(value, f"{place}.{ascii(key)[1:-1][:_SHOWN]}") for key, value in data.items()}
