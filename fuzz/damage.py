"""Ways of damaging bytes and JSON documents, all drawn from one generator of random numbers."""

import copy
import json
import random
from typing import Any

HUGE = (2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**64, 10**9, 10**18, 10**40, 10**400)
ODD_NUMBERS = (0, -1, 1, 2, 3, 7, 255, 65536, 1.5, -0.0, 1e300, 1e-320, *HUGE)
ODD_TEXTS = (
    "",
    " ",
    "\x1b[2J\x1b]0;title\x07",
    "\u202egnp.exe",
    "a" * 5000,
    "../../etc/passwd",
    "\x00",
    "\ud800",
    "<script>alert(1)</script>",
    "\\input{/etc/passwd}\\write18{id}",
    "$(touch canary)",
    "{0.__class__}",
    "%s%n",
    "nan",
    "-inf",
    "ℝ𝔘∞",
)
ODD_VALUES: tuple[Any, ...] = (
    *ODD_NUMBERS,
    *ODD_TEXTS,
    None,
    True,
    False,
    [],
    {},
    [[]],
    float("nan"),
    float("inf"),
)


def damaged_bytes(data: bytes, draw: random.Random) -> bytes:
    """The bytes with one to four things wrong."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        _damage(changed, draw)
    return bytes(changed)


def _damage(data: bytearray, draw: random.Random) -> None:
    kind = draw.randrange(8)
    if not data or kind == 0:
        data += draw.randbytes(draw.randint(1, 40))
        return
    place = draw.randrange(len(data))
    if kind <= 2:
        data[place] = draw.randrange(256)
    elif kind == 3:
        data[place] ^= 1 << draw.randrange(8)
    elif kind == 4:
        del data[place:]
    elif kind == 5:
        del data[place : place + draw.randint(1, 16)]
    elif kind == 6:
        size = draw.choice((1, 2, 4, 8))
        number = draw.choice((0, 1, 2**31, 2**63, 2**64 - 1, len(data))) % 256**size
        data[place : place + size] = number.to_bytes(size, "little")
    else:
        piece = data[place : place + draw.randint(1, 64)]
        other = draw.randrange(len(data))
        data[other:other] = piece * draw.choice((1, 2, 50))


def damaged_document(document: Any, draw: random.Random) -> bytes:
    """The text of a JSON document with one to three values changed, moved or removed."""
    changed = json.loads(json.dumps(document))
    for _ in range(draw.choice((1, 1, 2, 3))):
        changed = _changed(changed, draw)
    text = json.dumps(changed, ensure_ascii=draw.random() < 0.5)
    if draw.random() < 0.1:
        return damaged_bytes(text.encode("utf-8", "surrogatepass"), draw)
    return text.encode("utf-8", "surrogatepass")


def _changed(value: Any, draw: random.Random) -> Any:
    """Go down to a place, and change what is there."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        action = draw.randrange(10)
        if action == 0:
            del value[key]
        elif action == 1:
            value[str(draw.choice(ODD_TEXTS))] = value[key]
        else:
            value[key] = _changed(value[key], draw)
        return value
    if isinstance(value, list) and value and draw.random() < 0.9:
        place = draw.randrange(len(value))
        action = draw.randrange(8)
        if action == 0:
            del value[place]
        elif action == 1:
            value.extend(value[place:] * draw.choice((1, 30)))
        else:
            value[place] = _changed(value[place], draw)
        return value
    return _odd_value(value, draw)


def _odd_value(value: Any, draw: random.Random) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.6:
        return draw.choice((value + 1, value - 1, -value, 2 * value, 10 * value, *ODD_NUMBERS))
    if isinstance(value, str) and draw.random() < 0.4:
        return damaged_bytes(value.encode("utf-8", "replace"), draw).decode("utf-8", "replace")
    if draw.random() < 0.05:
        nested: Any = value
        for _ in range(draw.choice((10, 90, 110, 600))):
            nested = [nested]
        return nested if draw.random() < 0.3 else value
    # A copy: what a later change does to it must not reach other cases.
    return copy.deepcopy(draw.choice(ODD_VALUES))
