"""Where a growing function reaches a value."""

from collections.abc import Callable

# Counts are integers, budgets and roots are not.
Number = int | float


def solve_growing(function: Callable[[float], Number], target: Number) -> float:
    """The largest positive number at which a growing function is at most `target`.

    Args:
        function: grows on the positive numbers, starts at or below `target` and passes it.
        target: the value wanted.

    Example:
        >>> round(solve_growing(lambda side: side * side, 144.0), 9)
        12.0
    """
    low, high = 0.0, 1.0
    while function(high) <= target:
        low, high = high, 2 * high
    middle = (low + high) / 2
    while low < middle < high:
        low, high = (middle, high) if function(middle) <= target else (low, middle)
        middle = (low + high) / 2
    return low
