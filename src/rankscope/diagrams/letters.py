"""One letter per index, for einsum strings."""

from collections.abc import Iterable
from itertools import count

from opt_einsum import get_symbol


def letters(names: Iterable[str]) -> dict[str, str]:
    """A letter for each name: the name itself, or its first letter, or the next free one.

    Beyond 52, opt_einsum's further letters are used.

    Example:
        >>> letters(["batch", "b", "f", "feature", "f"])
        {'batch': 'B', 'b': 'b', 'f': 'f', 'feature': 'F'}
    """
    wanted = tuple(dict.fromkeys(names))
    used = dict.fromkeys(name for name in wanted if _is_letter(name))
    found: dict[str, str] = {}
    for name in wanted:
        if _is_letter(name):
            found[name] = name
            continue
        first = name[:1]
        own = [letter for letter in (first.lower(), first.upper()) if _is_letter(letter)]
        symbols = (symbol for symbol in map(get_symbol, count()) if symbol.isalpha())
        candidates = (*own, *(next(symbols) for _ in range(len(used) + 1)))
        found[name] = next(letter for letter in candidates if letter not in used)
        used[found[name]] = None
    return found


def _is_letter(name: str) -> bool:
    return len(name) == 1 and name.isascii() and name.isalpha()
