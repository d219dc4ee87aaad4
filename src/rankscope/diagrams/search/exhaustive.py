"""The cheapest order of all, by dynamic programming over subsets of operands."""

from dataclasses import dataclass

from rankscope.diagrams.search.problem import Path, Problem

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
        found = _best_of(problem, subset, held_outside[subset], best)
        if found is not None:
            best[subset] = found
    if everything not in best:
        return None
    return _as_path(best, everything, count)


def _held_outside(problem: Problem, everything: int) -> list[int]:
    """For every subset, the indices that the output or an operand outside it holds."""
    held = [problem.output_mask] * (everything + 1)
    for subset in range(everything - 1, -1, -1):
        missing = everything & ~subset
        lowest = missing & -missing
        held[subset] = held[subset | lowest] | problem.masks[lowest.bit_length() - 1]
    return held


def _best_of(problem: Problem, subset: int, outside: int, best: dict[int, _Best]) -> _Best | None:
    found: _Best | None = None
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
                if found is None or price < found.price:
                    fired = first.fired | second.fired | merge.fired
                    found = _Best(merge.indices, fired, price, (half, subset ^ half))
        half = (half - 1) & subset
    return found


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
