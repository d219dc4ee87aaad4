"""Splits of positions in two, and tensors as matrices under a split."""

import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from rankscope.errors import PartitionError

# --- Splitting the inputs of a function in two ----------------------------------------------------


@dataclass(frozen=True)
class Partition:
    """Two disjoint, non-empty groups of positions; a position on neither side is held fixed.

    Both sides are kept in ascending order, which fixes the rows and columns of a matricization.

    Example:
        >>> Partition((2, 0), (1,))
        Partition(left=(0, 2), right=(1,))
        >>> Partition.of([2, 0], order=4)
        Partition(left=(0, 2), right=(1, 3))
    """

    left: tuple[int, ...]
    right: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.left or not self.right:
            raise PartitionError(
                f"Both sides of a partition must hold a position, got {self.left} and {self.right}."
            )
        negative = [position for position in self.left + self.right if position < 0]
        if negative:
            raise PartitionError(
                f"Positions are counted from 0, got {negative[0]} in {self.left} and {self.right}."
            )
        for side in (self.left, self.right):
            repeated = [position for position, count in Counter(side).items() if count > 1]
            if repeated:
                raise PartitionError(
                    f"A side must hold each position once, got {repeated[0]} "
                    f"{side.count(repeated[0])} times in {side}."
                )
        on_the_right = set(self.right)
        shared = [position for position in self.left if position in on_the_right]
        if shared:
            raise PartitionError(
                f"The sides of a partition must be disjoint, got {shared[0]} "
                f"in both {self.left} and {self.right}."
            )
        object.__setattr__(self, "left", tuple(sorted(self.left)))
        object.__setattr__(self, "right", tuple(sorted(self.right)))

    @classmethod
    def of(cls, left: Iterable[int], *, order: int) -> "Partition":
        """Put `left` on one side and every other one of `order` positions on the other.

        Raises:
            PartitionError: if a position of `left` is not one of `range(order)`.
        """
        chosen = tuple(left)
        outside = [position for position in chosen if not 0 <= position < order]
        if outside:
            raise PartitionError(
                f"Partition.of: positions must lie in 0..{order - 1} for order {order}, "
                f"got {outside[0]} in {chosen}."
            )
        members = set(chosen)
        return cls(chosen, tuple(p for p in range(order) if p not in members))

    @classmethod
    def interleaved(cls, order: int) -> "Partition":
        """Even positions against odd ones: neighbours are always apart."""
        return cls.of(range(0, order, 2), order=order)

    @classmethod
    def left_right(cls, order: int) -> "Partition":
        """First half against second half (of a sequence: its start against its end)."""
        return cls.of(range(order // 2), order=order)

    @classmethod
    def start_end(cls, order: int) -> "Partition":
        """The name that sequences use for `left_right`."""
        return cls.left_right(order)

    @classmethod
    def balanced_random(cls, order: int, *, seed: int) -> "Partition":
        """Half of the positions, drawn evenly, against the other half.

        Raises:
            PartitionError: if the order is odd, so that there are no two halves.
        """
        if order % 2:
            raise PartitionError(
                f"Partition.balanced_random: two equal sides need an even order, got {order}."
            )
        return cls.of(random.Random(seed).sample(range(order), order // 2), order=order)

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions of both sides, ascending."""
        return tuple(sorted(self.left + self.right))

    @property
    def smallest_order(self) -> int:
        """The least number of inputs that a function must have to be split so."""
        return max(self.left + self.right) + 1

    @property
    def is_balanced(self) -> bool:
        """Whether both sides hold equally many positions."""
        return len(self.left) == len(self.right)

    @property
    def swapped(self) -> "Partition":
        """The same split with its sides exchanged; every separation rank is the same."""
        return Partition(self.right, self.left)

    def fixed(self, order: int) -> tuple[int, ...]:
        """The positions of `range(order)` that stand on neither side.

        Raises:
            PartitionError: if the partition names a position outside `range(order)`.
        """
        if order < self.smallest_order:
            raise PartitionError(
                f"The partition names position {self.smallest_order - 1}, "
                f"but order {order} has only the positions 0..{order - 1}."
            )
        sides = set(self.positions)
        return tuple(position for position in range(order) if position not in sides)


# --- Arrays seen as matrices ----------------------------------------------------------------------


# A NumPy array or a torch tensor: naming the types would import both libraries.
AnyArray = TypeVar("AnyArray")


def matricize(array: AnyArray, partition: Partition) -> AnyArray:
    r"""Lay an array out as a matrix, `partition.left` along the rows.

    .. math:: [A]_{I,J}, \qquad \text{row} = \sum_t j_{i_t} \prod_{s>t} M_{i_s}, \quad
              \text{column} = \sum_t j_{k_t} \prod_{s>t} M_{k_s}

    with the positions of each side ascending and the first one most significant; every position
    of the array must stand on a side.

    Args:
        array: a NumPy array or a torch tensor; the matrix is one of the same kind.
        partition: which positions run along the rows and which along the columns.

    Example:
        >>> import numpy
        >>> matricize(numpy.zeros((2, 3, 4, 5)), Partition.interleaved(4)).shape
        (8, 15)

    Raises:
        PartitionError: if the partition does not cover exactly the positions of the array.

    Reference:
        Cohen & Shashua (2017), Sec. 2, arXiv:1605.06743.
    """
    untyped: Any = array
    shape = tuple(untyped.shape)
    if partition.positions != tuple(range(len(shape))):
        raise PartitionError(
            f"matricize: the partition covers the positions {partition.positions}, but the array "
            f"has order {len(shape)} (shape {shape}). Index the array at the positions held fixed."
        )
    rows = math.prod(shape[position] for position in partition.left)
    columns = math.prod(shape[position] for position in partition.right)
    permuted = _permute(untyped, partition.left + partition.right)
    matrix: AnyArray = permuted.reshape(rows, columns)
    return matrix


def _permute(array: Any, positions: tuple[int, ...]) -> Any:
    # The two libraries give `transpose` different meanings; only torch has `permute`.
    return array.permute(positions) if hasattr(array, "permute") else array.transpose(positions)
