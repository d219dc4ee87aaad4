"""One region as integers: which indices each operand holds, and what merging two of them costs.

Sets of indices are bit masks, so that the searches are quick and never depend on hash seeds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

from opt_einsum import paths

from rankscope.errors import ContractionError, MissingExtraError

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
        """The indices that the input and the kernel of each convolution are made from."""
        makers = {leaving: number for number, (_, _, leaving) in enumerate(self.convolutions)}

        def sources(index: int, seen: int) -> int:
            upstream = 1 << index
            maker = makers.get(index)
            if maker is not None and not seen >> maker & 1:
                for leg in self.convolutions[maker][:2]:
                    upstream |= sources(leg, seen | 1 << maker)
            return upstream

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
    numbers = []
    while mask:
        lowest = mask & -mask
        numbers.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(numbers)


# --- A cheap order for many operands: again and again the pair that shrinks memory most -----------


# Dead ends are rare; giving up after this many keeps the search polynomial.
MAX_DEAD_ENDS = 1000

# (outer product?, growth, operations), positions, and what comes out.
Candidate = tuple[tuple[bool, int, int], tuple[int, int], Merge]


def greedy_path(problem: Problem) -> Path | None:
    """Merge the pair whose product is smallest beside the two it replaces; ties by operations.

    Pairs that share an index or a convolution come before outer products. Where convolutions
    leave no pair to merge, the last choice is taken back and the next best one is tried.

    Returns:
        None when there were too many dead ends.
    """
    states = [(list(problem.masks), problem.all_convolutions)]
    choices = [_candidates(problem, *states[0])]
    path: list[tuple[int, int]] = []
    dead_ends = 0
    while len(states[-1][0]) > 1:
        if choices[-1]:
            _, pair, merge = choices[-1].pop()
            listed, unfired = states[-1]
            rest = [mask for place, mask in enumerate(listed) if place not in pair]
            states.append(([*rest, merge.indices], unfired & ~merge.fired))
            choices.append(_candidates(problem, *states[-1]))
            path.append(pair)
            continue
        dead_ends += 1
        if len(states) == 1 or dead_ends > MAX_DEAD_ENDS:
            return None
        del states[-1], choices[-1], path[-1]
    return tuple(path)


def _candidates(problem: Problem, listed: list[int], unfired: int) -> list[Candidate]:
    """Pairs that can be merged, the best one last."""
    candidates: list[Candidate] = []
    for first, second in combinations(range(len(listed)), 2):
        left, right = listed[first], listed[second]
        others = [mask for place, mask in enumerate(listed) if place not in (first, second)]
        outside = problem.output_mask
        for mask in others:
            outside |= mask
        merge = problem.merge((left, right), outside, unfired)
        if merge is None or _is_trap(problem, merge, others, unfired):
            continue
        growth = problem.size(merge.indices) - problem.size(left) - problem.size(right)
        score = (not (left & right or merge.fired), growth, merge.flops)
        candidates.append((score, (first, second), merge))
    return sorted(candidates, key=lambda candidate: candidate[:2], reverse=True)


def _is_trap(problem: Problem, merge: Merge, others: list[int], unfired: int) -> bool:
    """Whether the product shares convolutions with an operand it could never meet.

    What stands in the way now stays in the way, because legs of convolutions that are still to
    come are never summed.
    """
    left = unfired & ~merge.fired
    return any(problem.firing(merge.indices, other, left) is None for other in others)


# --- The cheapest order of all, by dynamic programming over subsets of operands -------------------


# 3^n / 2 merges are looked at: about a quarter of a million for twelve.
MAX_OPERANDS = 12


@dataclass(frozen=True)
class _Best:
    """The cheapest way to multiply one subset: operations, then entries written."""

    indices: int
    fired: int
    price: tuple[int, int]
    halves: tuple[int, int] | None


def cheapest_path(problem: Problem) -> Path | None:
    """The order with the fewest operations over all binary trees, outer products included.

    Which indices a subset holds, and which convolutions happened inside it, does not depend on
    the order, so the best order of a whole is made from the best orders of two halves. Among
    equals, the order that writes fewest entries wins.

    Returns:
        None when no order can be carried out.
    """
    count = len(problem.operands)
    everything = (1 << count) - 1
    held_outside = _held_outside(problem, everything)
    best: dict[int, _Best] = {}
    for number, mask in enumerate(problem.masks):
        if problem.is_alive(mask, problem.all_convolutions):
            best[1 << number] = _Best(mask, 0, (0, 0), None)
    for subset in sorted(range(1, everything + 1), key=lambda bits: (bits.bit_count(), bits)):
        cheapest = _best_of(problem, subset, held_outside[subset], best)
        if cheapest is not None:
            best[subset] = cheapest
    if everything not in best:
        return None
    return _as_path(best, everything, count)


def _held_outside(problem: Problem, everything: int) -> list[int]:
    """The indices that the output or an operand outside holds, for every subset of operands."""
    held = [problem.output_mask] * (everything + 1)
    for subset in range(everything - 1, -1, -1):
        missing = everything & ~subset
        lowest = missing & -missing
        held[subset] = held[subset | lowest] | problem.masks[lowest.bit_length() - 1]
    return held


def _best_of(problem: Problem, subset: int, outside: int, best: dict[int, _Best]) -> _Best | None:
    best_merge: _Best | None = None
    lowest = subset & -subset
    half = (subset - 1) & subset
    while half:
        # Each split is looked at once: the half with the first operand.
        if half & lowest and half in best and subset ^ half in best:
            first, second = best[half], best[subset ^ half]
            unfired = problem.all_convolutions & ~first.fired & ~second.fired
            merge = problem.merge((first.indices, second.indices), outside, unfired)
            if merge is not None:
                price = (
                    first.price[0] + second.price[0] + merge.flops,
                    first.price[1] + second.price[1] + problem.size(merge.indices),
                )
                if best_merge is None or price < best_merge.price:
                    fired = first.fired | second.fired | merge.fired
                    best_merge = _Best(merge.indices, fired, price, (half, subset ^ half))
        half = (half - 1) & subset
    return best_merge


def _as_path(best: dict[int, _Best], everything: int, count: int) -> Path:
    """The tree of halves as positions in a list that shrinks."""
    order: list[tuple[int, int]] = []

    def visit(subset: int) -> None:
        halves = best[subset].halves
        if halves is not None:
            for half in halves:
                visit(half)
            order.append(halves)

    visit(everything)
    listed = [1 << number for number in range(count)]
    path = []
    for halves in order:
        positions = tuple(sorted(listed.index(half) for half in halves))
        path.append(positions)
        for position in reversed(positions):
            del listed[position]
        listed.append(halves[0] | halves[1])
    return tuple(path)


# --- Ways to choose a contraction order, as objects; each says which regions it is for ------------


# Beyond this, Automatic takes the greedy order for regions with convolutions: still under 0.1 s.
AUTOMATIC_EXHAUSTIVE_OPERANDS = 9


class Method(ABC):
    """A way to choose a contraction order."""

    @abstractmethod
    def path(self, problem: Problem) -> Path:
        """An order for a region of two or more operands.

        Raises:
            ContractionError: if the method cannot treat the region, or finds no order.
        """


@dataclass(frozen=True)
class Automatic(Method):
    """opt_einsum's "auto"; with convolutions, our own search: exhaustive up to 9 operands.

    opt_einsum's is optimal up to four operands, then branches less and less, and is greedy
    beyond fourteen.
    """

    def path(self, problem: Problem) -> Path:
        if not problem.convolutions:
            return _library_path(paths.auto, problem)
        if len(problem.operands) <= AUTOMATIC_EXHAUSTIVE_OPERANDS:
            return Exhaustive().path(problem)
        return Greedy().path(problem)


AUTOMATIC = Automatic()


@dataclass(frozen=True)
class Exhaustive(Method):
    """The fewest operations over all orders, for at most twelve operands."""

    def path(self, problem: Problem) -> Path:
        count = len(problem.operands)
        if count > MAX_OPERANDS:
            raise ContractionError(
                f"Exhaustive() looks at every order of up to {MAX_OPERANDS} operands, "
                f"but this region has {count}; use Automatic() or Greedy()."
            )
        path = cheapest_path(problem)
        if path is None:
            raise ContractionError(
                f"No order of these {count} operands and {len(problem.convolutions)} convolutions "
                "can be carried out: each pair that meets must have all inputs on one side and all "
                "kernels on the other, and at most three convolutions."
            )
        return path


@dataclass(frozen=True)
class Greedy(Method):
    """opt_einsum's "greedy", and a greedy search of our own for regions with convolutions."""

    def path(self, problem: Problem) -> Path:
        if not problem.convolutions:
            return _library_path(paths.greedy, problem)
        path = greedy_path(problem)
        if path is None:
            raise ContractionError(
                f"Greedy() found no order of {len(problem.operands)} operands and "
                f"{len(problem.convolutions)} convolutions that can be carried out; "
                f"try Exhaustive() (up to {MAX_OPERANDS} operands)."
            )
        return path


@dataclass(frozen=True)
class InOrder(Method):
    """No search: the operands one after the other, as a chain of layers is carried out.

    Args:
        is_backward: start with the last operand instead of the first.
    """

    is_backward: bool = False

    def path(self, problem: Problem) -> Path:
        last = len(problem.operands) - 1
        # What has been multiplied so far stands at the end of the list.
        if self.is_backward:
            return tuple((place - 1, place) for place in range(last, 0, -1))
        return ((0, 1), *((0, place) for place in range(last - 1, 0, -1)))


IN_ORDER = InOrder()


@dataclass(frozen=True)
class Cotengra(Method):
    """cotengra's random greedy orders, the best of which is improved piece by piece.

    For large regions without convolutions. Everything follows from the seed, so that a plan is
    the same on every machine.
    """

    repeats: int = 128
    seed: int = 0

    def path(self, problem: Problem) -> Path:
        if problem.convolutions:
            raise ContractionError(
                f"Cotengra() knows no convolutions, and this region has "
                f"{len(problem.convolutions)}; use Automatic(), Exhaustive() or Greedy()."
            )
        try:
            import cotengra
        except ImportError as error:
            raise MissingExtraError(what="Cotengra()", package="cotengra", extra="paths") from error
        optimizer = cotengra.RandomGreedyOptimizer(
            max_repeats=self.repeats, seed=self.seed, accel=False, parallel=False
        )
        operands = [tuple(dict.fromkeys(operand)) for operand in problem.operands]
        tree = optimizer.search(operands, problem.output, dict(enumerate(problem.sizes)))
        tree.subtree_reconfigure_(subtree_size=8, minimize="flops", seed=self.seed)
        return tuple(tuple(sorted(positions)) for positions in tree.get_path())


Search = Callable[[list[frozenset[int]], frozenset[int], dict[int, int]], list[tuple[int, ...]]]


def _library_path(search: Search, problem: Problem) -> Path:
    # Integers instead of letters: no limit of 52, and their hashes never change between runs.
    steps = search(
        [frozenset(operand) for operand in problem.operands],
        frozenset(problem.output),
        dict(enumerate(problem.sizes)),
    )
    return tuple(tuple(sorted(positions)) for positions in steps)


@lru_cache(maxsize=1024)
def find_path(problem: Problem, method: Method) -> Path:
    """The order a method chooses; equal regions, as in the layers of a deep model, only once.

    One operand needs a move only if something is summed, taken on the diagonal or moved.

    Raises:
        ContractionError: if the method cannot treat the region, or finds no order.
    """
    if len(problem.operands) > 1:
        return method.path(problem)
    return () if problem.operands[0] == problem.output else ((0,),)
