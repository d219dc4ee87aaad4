"""The greedy order beside the best one; what a merge costs is tested in test_exhaustive.py."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import Path, Problem, cheapest_path, greedy_path

Words = list[list[int]]


def flops(problem: Problem, path: Path) -> int:
    """Operations of an order, which must be one that can be carried out."""
    listed, unfired, spent = list(problem.masks), problem.all_convolutions, 0
    for first, second in path:
        right, left = listed.pop(second), listed.pop(first)
        outside = problem.output_mask
        for mask in listed:
            outside |= mask
        merge = problem.merge((left, right), outside, unfired)
        assert merge is not None
        listed.append(merge.indices)
        unfired, spent = unfired & ~merge.fired, spent + merge.flops
    assert len(listed) == 1
    assert unfired == 0
    return spent


@st.composite
def words(draw: st.DrawFn) -> tuple[Words, list[int], list[tuple[int, int]]]:
    """Operands over six indices, sizes, and holders of inputs and kernels of convolutions."""
    count = draw(st.integers(2, 5))
    word = st.lists(st.integers(0, 5), max_size=3)
    sizes = draw(st.lists(st.integers(1, 6), min_size=18, max_size=18))
    place = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(place, place), max_size=4))
    return draw(st.lists(word, min_size=count, max_size=count)), sizes, pairs


@settings(deadline=None, max_examples=150)
@given(words())
def test_up_to_five_operands_it_finds_an_order_whenever_there_is_one(
    drawn: tuple[Words, list[int], list[tuple[int, int]]],
) -> None:
    operands, sizes, pairs = [list(word) for word in drawn[0]], drawn[1], drawn[2]
    convolutions = []
    for number, (first, second) in enumerate(pairs):
        legs = (6 + 3 * number, 7 + 3 * number, 8 + 3 * number)
        operands[first].append(legs[0])
        operands[second].append(legs[1])
        convolutions.append(legs)
    problem = Problem(
        tuple(tuple(operand) for operand in operands), (0, 8, 11), tuple(sizes), tuple(convolutions)
    )
    best, found = cheapest_path(problem), greedy_path(problem)
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert flops(problem, found) >= flops(problem, best)


def test_the_pair_that_shrinks_memory_most_comes_first() -> None:
    # ab,bc,cd with b = 9: merging over b removes most.
    assert greedy_path(Problem(((0, 1), (1, 2), (2, 3)), (0, 3), (2, 9, 3, 2))) == ((0, 1), (0, 1))


def test_connected_pairs_come_before_outer_products() -> None:
    # a,b,abc: the outer product of a and b is smaller than anything with c.
    path = greedy_path(Problem(((0,), (1,), (0, 1, 2)), (0, 1, 2), (2, 2, 50)))
    assert path is not None
    assert path[0] != (0, 1)
