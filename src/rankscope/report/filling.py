"""Files of the page put together: templates, and data that cannot break out of its script."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files

PLACE = re.compile(r"@(\w+)@")


def asset(name: str) -> str:
    """The text of a file in `assets/`."""
    return (files("rankscope.report") / "assets" / name).read_text("utf-8")


def fill(template: str, texts: Mapping[str, str]) -> str:
    """Put a text at every `@place@`, in one pass: a text with such a place in it stays a text.

    Example:
        >>> fill("<p>@one@</p>", {"one": "@two@"})
        '<p>@two@</p>'
    """
    return PLACE.sub(lambda found: texts[found[1]], template)


def embedded_json(value: object) -> str:
    r"""JSON for a script element: the text cannot end it, and numbers that JSON lacks are null.

    Example:
        >>> embedded_json({"name": "</script>", "rank": float("nan")})
        '{"name":"\\u003c/script>","rank":null}'
    """
    written = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # A lone surrogate has no UTF-8; names come from files that anyone may have written.
    safe = written.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return safe.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def shortened(values: Iterable[float]) -> list[float | None]:
    """Four digits that count, enough for a picture; None where JSON has no number.

    Example:
        >>> shortened([1.23456, float("inf")])
        [1.235, None]
    """
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]


def _finite(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: _finite(entry) for key, entry in value.items()}
        case list() | tuple():
            # Most entries are plain numbers, and there are many.
            return [
                entry if isinstance(entry, float) and math.isfinite(entry) else _finite(entry)
                for entry in value
            ]
        case _:
            return value
