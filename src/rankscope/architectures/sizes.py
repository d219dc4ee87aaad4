"""The sizes a network is built with, checked."""

from rankscope.errors import SizeError


def require_sizes(who: str, *, least: int = 1, **sizes: int) -> None:
    """Refuse sizes below `least`, naming the first one.

    Raises:
        SizeError: if a size is smaller.
    """
    for name, size in sizes.items():
        if size < least:
            raise SizeError(f"{who}: {name} must be at least {least}, got {size}.")
