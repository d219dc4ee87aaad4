"""Bringing the axes of a tensor where an operation wants them, as plain data."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

Indices = tuple[str, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Reduce:
    """What to do with one tensor, in this order; what is empty or None is left out.

    Args:
        diagonals: pairs of positions whose diagonal is taken; the new axis goes to the end.
        sums: positions to sum.
        permutation: new order of the axes.
        shape: new shape.
    """

    diagonals: tuple[tuple[int, int], ...] = ()
    sums: Shape = ()
    permutation: Shape | None = None
    shape: Shape | None = None


def shape_of(indices: Indices, sizes: Mapping[str, int]) -> Shape:
    """Sizes of some indices, in order."""
    return tuple(sizes[index] for index in indices)


def without_repeats(indices: Indices, keep: Collection[str]) -> Indices:
    """The indices left, in order, after `grouped` has taken diagonals and sums."""
    _, left = _diagonals(indices)
    return tuple(index for index in left if index in keep)


def grouped(indices: Indices, groups: Sequence[Indices], sizes: Mapping[str, int]) -> Reduce | None:
    """Bring a tensor to one axis per group of indices; None if it is like that already.

    Repeated indices become diagonals, and indices in no group are summed.

    Example:
        >>> grouped(("i", "j", "k"), (("k", "i"), ()), {"i": 2, "j": 3, "k": 4})
        Reduce(diagonals=(), sums=(1,), permutation=(1, 0), shape=(8, 1))
    """
    wanted = tuple(index for group in groups for index in group)
    diagonals, left = _diagonals(indices)
    sums = tuple(place for place, index in enumerate(left) if index not in wanted)
    kept = tuple(index for index in left if index in wanted)
    permutation = tuple(kept.index(index) for index in wanted)
    after = tuple(math.prod(shape_of(group, sizes)) for group in groups)
    found = Reduce(
        diagonals,
        sums,
        None if kept == wanted else permutation,
        None if shape_of(wanted, sizes) == after else after,
    )
    return None if found == Reduce() else found


def single(indices: Indices) -> tuple[Indices, ...]:
    """Each index as a group of its own."""
    return tuple((index,) for index in indices)


def _diagonals(indices: Indices) -> tuple[tuple[tuple[int, int], ...], Indices]:
    left, diagonals = list(indices), []
    for index in dict.fromkeys(indices):
        while left.count(index) > 1:
            first = left.index(index)
            second = left.index(index, first + 1)
            diagonals.append((first, second))
            left = [*left[:first], *left[first + 1 : second], *left[second + 1 :], index]
    return tuple(diagonals), tuple(left)
