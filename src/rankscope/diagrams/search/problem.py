"""One region as integers: which indices each operand holds, and what merging two of them costs.

Sets of indices are bit masks, so that the searches are quick and never depend on hash seeds.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

# (positions to take away, product goes to the end), as in opt_einsum.
Path = tuple[tuple[int, ...], ...]

# F.conv1d, F.conv2d and F.conv3d are all there is.
MAX_CONVOLUTIONS_AT_ONCE = 3


@dataclass(frozen=True)
class Merge:
    """What comes out of a merge: its indices, convolutions carried out, and operations."""

    indices: int
    fired: int
    flops: int


@dataclass(frozen=True)
class Problem:
    """A region to contract.

    Args:
        operands: indices of each operand, as numbers.
        output: indices to keep.
        sizes: size of index 0, 1, ….
        convolutions: (input, kernel, output) index of each convolution.
    """

    operands: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    sizes: tuple[int, ...]
    convolutions: tuple[tuple[int, int, int], ...] = ()

    @cached_property
    def masks(self) -> tuple[int, ...]:
        """Indices of each operand."""
        return tuple(mask_of(operand) for operand in self.operands)

    @cached_property
    def output_mask(self) -> int:
        """Indices to keep."""
        return mask_of(self.output)

    @cached_property
    def all_convolutions(self) -> int:
        """The set of every convolution."""
        return (1 << len(self.convolutions)) - 1

    def size(self, indices: int) -> int:
        """Number of entries of a tensor with these indices."""
        known = self._size_cache.get(indices)
        if known is None:
            known = self._size_cache[indices] = math.prod(
                self.sizes[index] for index in members(indices)
            )
        return known

    @cached_property
    def _size_cache(self) -> dict[int, int]:
        return {}

    def merge(self, operands: Sequence[int], outside: int, unfired: int) -> Merge | None:
        """Multiply operands (masks of indices); None when PyTorch has no such convolution.

        A convolution happens when the operand that holds its input meets the one that holds its
        kernel. Operations are counted as opt_einsum does: one per entry of the loop over all
        indices for each further operand, and one more when an index is summed; a convolution
        loops over its output and its kernel.

        Args:
            operands: indices of each operand.
            outside: indices that some other operand or the result of the region holds.
            unfired: convolutions that have not been carried out yet.
        """
        fired = self.firing(operands[0], operands[1], unfired) if len(operands) == 2 else 0
        if fired is None:
            return None
        held = 0
        for operand in operands:
            held |= operand
        inputs = kernels = outputs = 0
        for number in members(fired):
            entering, kernel, leaving = self.convolutions[number]
            inputs, kernels = inputs | 1 << entering, kernels | 1 << kernel
            outputs |= 1 << leaving
        left = unfired & ~fired
        needed = outside | self._legs(left)
        result = (held & ~inputs & ~kernels | outputs) & needed
        if not self.is_alive(result, left):
            return None
        loop = held & ~inputs | outputs
        factor = max(1, len(operands) - 1) + (loop != result)
        return Merge(result, fired, factor * self.size(loop))

    def is_alive(self, indices: int, unfired: int) -> bool:
        """Whether one operand may hold these indices while those convolutions are to come."""
        return not unfired or self.clash(indices, unfired) is None

    def clash(self, indices: int, unfired: int) -> int | None:
        """The convolution that can never happen because one operand holds these indices.

        Its input, its kernel and its output must come from different operands.
        """
        for number in members(unfired):
            entering, kernels = self._upstream[number]
            leaving = 1 << self.convolutions[number][2]
            sides = bool(indices & entering) + bool(indices & kernels) + bool(indices & leaving)
            if sides > 1:
                return number
        return None

    def firing(self, first: int, second: int, unfired: int) -> int | None:
        """Convolutions that happen when two operands meet; None when PyTorch cannot do them."""
        forward = backward = outputs = 0
        for number in members(unfired):
            entering, kernel, leaving = self.convolutions[number]
            if first >> entering & second >> kernel & 1:
                forward |= 1 << number
            elif second >> entering & first >> kernel & 1:
                backward |= 1 << number
            else:
                continue
            # Two outputs with one name, or a name that is there already, would be a diagonal.
            if (outputs | first | second) >> leaving & 1:
                return None
            outputs |= 1 << leaving
        fired = forward | backward
        if (forward and backward) or fired.bit_count() > MAX_CONVOLUTIONS_AT_ONCE:
            return None
        return fired

    def _legs(self, convolutions: int) -> int:
        known = self._leg_cache.get(convolutions)
        if known is None:
            known = self._leg_cache[convolutions] = mask_of(
                index for number in members(convolutions) for index in self.convolutions[number]
            )
        return known

    @cached_property
    def _leg_cache(self) -> dict[int, int]:
        return {}

    @cached_property
    def _upstream(self) -> tuple[tuple[int, int], ...]:
        """For each convolution, the indices its input and its kernel are made from."""
        makers = {leaving: number for number, (_, _, leaving) in enumerate(self.convolutions)}

        def sources(index: int, seen: int) -> int:
            found = 1 << index
            maker = makers.get(index)
            if maker is not None and not seen >> maker & 1:
                for leg in self.convolutions[maker][:2]:
                    found |= sources(leg, seen | 1 << maker)
            return found

        return tuple(
            (sources(entering, 1 << number), sources(kernel, 1 << number))
            for number, (entering, kernel, _) in enumerate(self.convolutions)
        )


def mask_of(numbers: Iterable[int]) -> int:
    """The set of these numbers as bits.

    Example:
        >>> mask_of((0, 3))
        9
    """
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def members(mask: int) -> tuple[int, ...]:
    """The numbers in a set of bits, in order.

    Example:
        >>> members(9)
        (0, 3)
    """
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(found)
