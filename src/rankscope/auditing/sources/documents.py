"""JSON objects from strangers: configurations, indices of shards, headers of weights."""

import json
from pathlib import Path
from typing import Any

from rankscope.auditing.sources.plain_file import plain_file
from rankscope.errors import ModelFileError

# The index of the largest models known has about 15 MB.
_MAX_BYTES = 64_000_000


def read_document(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ModelFileError: if the file cannot be read, is too long, or holds anything else.
    """
    with plain_file(path) as (file, size):
        if size > _MAX_BYTES:
            raise ModelFileError(
                f"{path} has {size:,} bytes; a JSON file of a model has at most {_MAX_BYTES:,}."
            )
        return parse_document(file.read(), who=str(path))


def parse_document(data: bytes, *, who: str) -> dict[str, Any]:
    """The JSON object in a text; what would be read twice in two ways is refused.

    Example:
        >>> parse_document(b'{"width": 64}', who="config.json")
        {'width': 64}

    Raises:
        ModelFileError: if the text is no UTF-8, no JSON, no object, nested too deeply, or repeats
            a key; the message starts with `who`.
    """
    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=_without_repeats)
    except RecursionError as error:
        raise ModelFileError(f"{who} is not usable JSON: it is nested too deeply.") from error
    except ValueError as error:
        # Broken JSON, text that is not UTF-8, a repeated key, an integer of thousands of digits.
        raise ModelFileError(f"{who} is not usable JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ModelFileError(f"{who} holds a {type(found).__name__}; wanted a JSON object.")
    return found


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {ascii(key)[:80]} stands twice in one object")
        found[key] = value
    return found
