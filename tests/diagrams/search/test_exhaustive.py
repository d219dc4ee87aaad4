"""The dynamic programme against all orders, one by one, with sets instead of bit masks."""

import math
from itertools import combinations

import opt_einsum
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.diagrams import Path, Problem, cheapest_path

Held = frozenset[int]
Convolution = tuple[int, int, int]
Parts = tuple[
    tuple[tuple[int, ...], ...], tuple[int, ...], tuple[int, ...], tuple[Convolution, ...]
]


@st.composite
def parts(draw: st.DrawFn, *, max_convolutions: int = 4) -> Parts:
    """What a problem is made of, as plain data: the type checker must not run in a strategy.

    Operands with shared indices of any number of ends, joined by convolutions and chains of them.
    """
    count = draw(st.integers(2, 5))
    operands: list[list[int]] = [[] for _ in range(count)]
    sizes: list[int] = []
    output: list[int] = []
    places = st.integers(0, count - 1)

    def add_index(holders: list[int], *, is_open: bool = False) -> int:
        sizes.append(draw(st.integers(1, 5)))
        for place in holders:
            operands[place].append(len(sizes) - 1)
        if is_open:
            output.append(len(sizes) - 1)
        return len(sizes) - 1

    for _ in range(draw(st.integers(1, 5))):
        holders = draw(st.lists(places, min_size=1, max_size=3))
        add_index(holders, is_open=draw(st.booleans()))
    convolutions: list[Convolution] = []
    chained: int | None = None
    for _ in range(draw(st.integers(0, max_convolutions))):
        entering = add_index([draw(places)]) if chained is None else chained
        kernel = add_index([draw(places)])
        # The output is open, summed, held by an operand, or the input of the next convolution.
        fate = draw(st.integers(0, 3))
        leaving = add_index([draw(places)] if fate == 2 else [], is_open=fate == 0)
        convolutions.append((entering, kernel, leaving))
        chained = leaving if fate == 3 else None
    words = tuple(tuple(operand) for operand in operands)
    return words, tuple(output), tuple(sizes), tuple(convolutions)


def merged(
    problem: Problem, listed: list[Held], pair: tuple[int, int], waiting: list[Convolution]
) -> tuple[Held, list[Convolution], int] | None:
    """What one merge gives by the rules in words: result, convolutions left, operations."""
    first, second = listed[pair[0]], listed[pair[1]]
    others = [held for place, held in enumerate(listed) if place not in pair]
    forward = [c for c in waiting if c[0] in first and c[1] in second]
    backward = [c for c in waiting if c[0] in second and c[1] in first]
    fired = forward + backward
    leaving = [c[2] for c in fired]
    if (forward and backward) or len(fired) > 3 or len(set(leaving)) < len(leaving):
        return None
    if any(leg in first | second for leg in leaving):
        return None
    left = [c for c in waiting if c not in fired]
    held = (first | second) - {c[0] for c in fired} | set(leaving)
    needed = set(problem.output).union(*others, *left)
    result = frozenset((held - {c[1] for c in fired}) & needed)
    if any(c[0] in result and c[1] in result for c in left):
        return None
    loop = math.prod(problem.sizes[index] for index in held)
    return result, left, loop * (1 if result == held else 2)


def all_costs(problem: Problem) -> list[int]:
    """Operations of every order that can be carried out."""
    found: list[int] = []

    def visit(listed: list[Held], waiting: list[Convolution], spent: int) -> None:
        if len(listed) == 1:
            if not waiting:
                found.append(spent)
            return
        for pair in combinations(range(len(listed)), 2):
            step = merged(problem, listed, pair, waiting)
            if step is not None:
                rest = [held for place, held in enumerate(listed) if place not in pair]
                visit([*rest, step[0]], step[1], spent + step[2])

    visit([frozenset(operand) for operand in problem.operands], list(problem.convolutions), 0)
    return found


def cost_of(problem: Problem, path: Path) -> int:
    """Operations of one order."""
    listed = [frozenset(operand) for operand in problem.operands]
    waiting, spent = list(problem.convolutions), 0
    for first, second in path:
        step = merged(problem, listed, (first, second), waiting)
        assert step is not None
        listed = [held for place, held in enumerate(listed) if place not in (first, second)]
        listed.append(step[0])
        waiting, spent = step[1], spent + step[2]
    assert not waiting
    assert len(listed) == 1
    return spent


@settings(deadline=None, max_examples=150)
@given(parts())
def test_the_search_finds_the_cheapest_of_all_orders_or_proves_there_is_none(
    drawn: Parts,
) -> None:
    problem = Problem(*drawn)
    costs = all_costs(problem)
    path = cheapest_path(problem)
    if costs:
        assert path is not None
        assert cost_of(problem, path) == min(costs)
    else:
        assert path is None


@settings(deadline=None, max_examples=100)
@given(parts(max_convolutions=0))
def test_without_convolutions_no_order_of_opt_einsum_is_cheaper(drawn: Parts) -> None:
    problem = Problem(*drawn)
    path = cheapest_path(problem)
    assert path is not None
    arguments: list[object] = []
    for operand in problem.operands:
        arguments += [[problem.sizes[index] for index in operand], operand]
    parsed = opt_einsum.parser.parse_einsum_input([*arguments, problem.output], shapes=True)
    equation = f"{parsed[0]}->{parsed[1]}"
    _, ours = opt_einsum.contract_path(equation, *parsed[2], shapes=True, optimize=path)
    _, theirs = opt_einsum.contract_path(equation, *parsed[2], shapes=True, optimize="optimal")
    assert int(ours.opt_cost) == cost_of(problem, path)
    assert int(ours.opt_cost) <= int(theirs.opt_cost)


def test_among_equal_costs_the_order_that_writes_fewest_entries_wins() -> None:
    # abc,bc,ab->a costs 36 in every order, and writes 6 + 2, 12 + 2 or 12 + 2 entries.
    problem = Problem(((0, 1, 2), (1, 2), (0, 1)), (0,), (2, 3, 2))
    assert all_costs(problem) == [36, 36, 36]
    assert cheapest_path(problem) == ((0, 1), (0, 1))


def test_a_chain_of_convolutions_is_carried_out_from_its_first_input() -> None:
    # X(h) * K(u) -> (g), then * L(v) -> (w): merging K and L first would leave nothing to do.
    chain = Problem(((1,), (0,), (3,)), (4,), (10, 3, 8, 3, 6), ((0, 1, 2), (2, 3, 4)))
    path = cheapest_path(chain)
    assert path == ((0, 1), (0, 1))
    assert cost_of(chain, path) == 2 * 8 * 3 + 2 * 6 * 3
