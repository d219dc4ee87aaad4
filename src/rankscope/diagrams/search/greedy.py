"""A cheap order for many operands: again and again the pair that shrinks memory most."""

from itertools import combinations

from rankscope.diagrams.search.problem import Merge, Path, Problem


def greedy_path(problem: Problem) -> Path | None:
    """Merge the pair whose product is smallest beside the two it replaces; ties by operations.

    Pairs that share an index or a convolution come before outer products.

    Returns:
        None when it runs into a corner where no pair can be merged.
    """
    listed = list(problem.masks)
    unfired = problem.all_convolutions
    path = []
    while len(listed) > 1:
        choice = _cheapest_pair(problem, listed, unfired)
        if choice is None:
            return None
        (first, second), merge = choice
        del listed[second], listed[first]
        listed.append(merge.indices)
        unfired &= ~merge.fired
        path.append((first, second))
    return tuple(path)


def _cheapest_pair(
    problem: Problem, listed: list[int], unfired: int
) -> tuple[tuple[int, int], Merge] | None:
    best: tuple[tuple[int, int, int], tuple[int, int], Merge] | None = None
    for first, second in combinations(range(len(listed)), 2):
        left, right = listed[first], listed[second]
        others = [mask for place, mask in enumerate(listed) if place not in (first, second)]
        outside = problem.output_mask
        for mask in others:
            outside |= mask
        merge = problem.merge((left, right), outside, unfired)
        if merge is None or _is_trap(problem, merge, others, unfired):
            continue
        is_outer = not (left & right or merge.fired)
        growth = problem.size(merge.indices) - problem.size(left) - problem.size(right)
        score = (int(is_outer), growth, merge.flops)
        if best is None or score < best[0]:
            best = (score, (first, second), merge)
    return None if best is None else (best[1], best[2])


def _is_trap(problem: Problem, merge: Merge, others: list[int], unfired: int) -> bool:
    """Whether the product shares convolutions with an operand it could never meet.

    What stands in the way now stays in the way, because legs of convolutions that are still to
    come are never summed.
    """
    left = unfired & ~merge.fired
    return any(problem.firing(merge.indices, other, left) is None for other in others)
