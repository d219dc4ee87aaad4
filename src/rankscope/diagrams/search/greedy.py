"""A cheap order for many operands: again and again the pair that shrinks memory most."""

from itertools import combinations

from rankscope.diagrams.search.problem import Merge, Path, Problem

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
    found: list[Candidate] = []
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
        found.append((score, (first, second), merge))
    return sorted(found, key=lambda candidate: candidate[:2], reverse=True)


def _is_trap(problem: Problem, merge: Merge, others: list[int], unfired: int) -> bool:
    """Whether the product shares convolutions with an operand it could never meet.

    What stands in the way now stays in the way, because legs of convolutions that are still to
    come are never summed.
    """
    left = unfired & ~merge.fired
    return any(problem.firing(merge.indices, other, left) is None for other in others)
