"""The cheapest cut against all sides of all nodes, and against ranks of random tensors."""

import json
import math
from itertools import product

import numpy
import opt_einsum
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rankscope.diagrams import (
    Convolution,
    Diagram,
    Function,
    Index,
    Node,
    Region,
    minimal_cut,
    prime_factors,
)
from rankscope.errors import DiagramError, SizeError

Drawn = tuple[list[list[int]], list[int], list[int]]


@st.composite
def networks(draw: st.DrawFn) -> Drawn:
    """Indices of each node (hyperedges included), sizes, and open legs."""
    count = draw(st.integers(1, 6))
    held: list[list[int]] = [[] for _ in range(count)]
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=2, max_size=7))
    for index in range(len(sizes)):
        for place in draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3)):
            held[place].append(index)
    output = draw(st.lists(st.sampled_from(range(len(sizes))), min_size=2, unique=True))
    return held, sizes, output


def built(held: list[list[int]], sizes: list[int], output: list[int]) -> Diagram:
    return Diagram(
        "random",
        tuple(Index(f"i{index}", size) for index, size in enumerate(sizes)),
        tuple(
            Node(f"T{place}", tuple(f"i{index}" for index in own)) for place, own in enumerate(held)
        ),
        tuple(f"i{index}" for index in output),
    )


@settings(deadline=None, max_examples=150)
@given(drawn=networks(), seed=st.integers(0, 2**16), split=st.integers(1, 3))
def test_the_cut_is_the_least_product_over_all_sides_and_bounds_the_rank(
    drawn: Drawn, seed: int, split: int
) -> None:
    diagram = built(*drawn)
    assume(split < len(diagram.output))
    left, right = diagram.output[:split], diagram.output[split : split + 2]
    cut = minimal_cut(diagram, left, right)
    assert cut.value == min(all_values(diagram, left, right))
    sizes = {index.name: index.size or 0 for index in diagram.indices}
    assert cut.value == math.prod(sizes[index] for index in cut.indices)
    assert {*cut.left_nodes, *cut.right_nodes} == set(diagram.node_by_name)
    assert set(left) <= set(cut.left_legs)
    assert set(right) <= set(cut.right_legs)
    assert sorted((*cut.left_legs, *cut.right_legs)) == sorted(diagram.output)
    assert rank_modulo_prime(diagram, cut.left_legs, cut.right_legs, seed) <= cut.value


def all_values(diagram: Diagram, left: tuple[str, ...], right: tuple[str, ...]) -> list[int]:
    """The product of cut indices for every way to put nodes on two sides."""
    found = []
    for sides in product((False, True), repeat=len(diagram.nodes)):
        value = 1
        for index in diagram.indices:
            ends = {side for node, side in zip(diagram.nodes, sides, strict=True)
                    if index.name in node.indices}  # fmt: skip
            ends |= {True} if index.name in left else set()
            ends |= {False} if index.name in right else set()
            value *= (index.size or 0) if len(ends) == 2 else 1
        found.append(value)
    return found


def rank_modulo_prime(
    diagram: Diagram, rows: tuple[str, ...], columns: tuple[str, ...], seed: int
) -> int:
    """Rank of the matricization of a random integer tensor, exact modulo 101.

    A factorization over the integers is one modulo a prime too, so the bound must hold there.
    """
    prime = 101
    draw = numpy.random.default_rng(seed)
    sizes = {index.name: index.size or 0 for index in diagram.indices}
    operands: list[object] = []
    for node in diagram.nodes:
        # As objects, so that sums of products are integers of any length.
        entries = draw.integers(0, 3, [sizes[index] for index in node.indices]).astype(object)
        operands += [entries, node.indices]
    value = numpy.asarray(opt_einsum.contract(*operands, (*rows, *columns)), dtype=object)
    matrix = value.reshape(math.prod(sizes[leg] for leg in rows), -1) % prime
    matrix, rank = matrix.astype(numpy.int64), 0
    for column in range(matrix.shape[1]):
        pivots = numpy.flatnonzero(matrix[rank:, column])
        if len(pivots) == 0:
            continue
        pivot = rank + int(pivots[0])
        matrix[[rank, pivot]] = matrix[[pivot, rank]]
        matrix[rank] = matrix[rank] * pow(int(matrix[rank, column]), -1, prime) % prime
        factors = matrix[:, column].copy()
        factors[rank] = 0
        matrix = (matrix - numpy.outer(factors, matrix[rank])) % prime
        rank += 1
        if rank == matrix.shape[0]:
            break
    return rank


def chain(*sizes: int) -> Diagram:
    """A(l, i0, i1, …), B(i0, i1, …, r) with large open legs."""
    bonds = tuple(f"i{place}" for place in range(len(sizes)))
    indices = [Index(name, size) for name, size in zip(bonds, sizes, strict=True)]
    indices += [Index("l", 10**6), Index("r", 10**6)]
    nodes = (Node("A", ("l", *bonds)), Node("B", (*bonds, "r")))
    return Diagram("chain", tuple(indices), nodes, ("l", "r"))


def test_products_that_differ_by_one_in_a_million_are_told_apart() -> None:
    # 999 * 1001 = 999999 parts A from B, and 10**6 - 2 is the size of the leg itself.
    bonds = chain(999, 1001)
    assert minimal_cut(bonds, ("l",), ("r",)).value == 999_999
    closer = bonds.with_sizes(l=999_998)
    assert minimal_cut(closer, ("l",), ("r",)).indices == ("l",)


def test_among_equal_products_fewest_indices_are_cut_and_then_those_furthest_right() -> None:
    indices = (Index("l", 6), Index("r", 2), Index("s", 3))
    node = Diagram("node", indices, (Node("A", ("l", "r", "s")),), ("l", "r", "s"))
    assert minimal_cut(node, ("l",), ("r", "s")).indices == ("l",)
    assert minimal_cut(node, ("r", "s"), ("l",)).indices == ("l",)
    assert minimal_cut(chain(10**6), ("l",), ("r",)).indices == ("r",)


def test_a_hyperedge_counts_once() -> None:
    star = Diagram(
        "star",
        (Index("r", 5), *(Index(name, 9) for name in "abcd")),
        tuple(Node(name.upper(), (name, "r")) for name in "abcd"),
        ("a", "b", "c", "d"),
    )
    cut = minimal_cut(star, ("a", "b"), ("c", "d"))
    assert (cut.value, cut.indices) == (5, ("r",))


def test_a_convolution_is_a_tensor_of_three_legs() -> None:
    diagram = Diagram(
        "conv",
        (Index("h", 9), Index("k", 2), Index("x", 8), Index("c", 50)),
        (Node("X", ("h",)), Node("K", ("k", "c"))),
        ("x", "c"),
        (Convolution("star", "h", "k", "x"),),
    )
    cut = minimal_cut(diagram, ("x",), ("c",))
    assert (cut.value, cut.indices, cut.left_nodes) == (2, ("k",), ("X", "star"))


def test_a_cut_prints_itself_and_is_plain_json() -> None:
    cut = minimal_cut(chain(2, 3), ("l",), ("r",))
    assert str(cut) == "minimal cut l | r: 6 through i0, i1"
    assert json.loads(json.dumps(cut.to_dict()))["value"] == 6
    apart = Diagram(
        "apart", (Index("l", 2), Index("r", 3)), (Node("A", ("l",)), Node("B", ("r",))), ("l", "r")
    )
    assert str(minimal_cut(apart, ("l",), ("r",))) == "minimal cut l | r: 1 through nothing"


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ((), ("r",), "the left group of open legs is empty"),
        (("l",), (), "the right group of open legs is empty"),
        (("i0",), ("r",), "'i0' is not an open leg of 'chain'; these are: l, r"),
        (("l", "r"), ("r",), "legs r are in both groups"),
    ],
)
def test_groups_that_are_no_two_groups_of_open_legs_are_refused(
    left: tuple[str, ...], right: tuple[str, ...], message: str
) -> None:
    with pytest.raises(DiagramError, match=message):
        minimal_cut(chain(2), left, right)


@pytest.mark.parametrize(
    ("function", "causal", "what"),
    [("relu", None, "relu"), ("identity", ("l", "r"), "a causal mask")],
)
def test_regions_that_are_not_linear_are_refused_by_name(
    function: str, causal: tuple[str, str] | None, what: str
) -> None:
    plain = chain(2)
    region = Region("R", ("A", "B"), Function(function), causal=causal)
    barrier = Diagram("chain", plain.indices, plain.nodes, plain.output, regions=(region,))
    with pytest.raises(DiagramError, match=rf"region 'R' of 'chain' applies {what}, which"):
        minimal_cut(barrier, ("l",), ("r",))
    scaled = Region("R", ("A", "B"), Function("identity"), scale="2")
    linear = Diagram("chain", plain.indices, plain.nodes, plain.output, regions=(scaled,))
    assert minimal_cut(linear, ("l",), ("r",)).value == 2


def test_missing_sizes_are_refused() -> None:
    diagram = Diagram("d", (Index("l"), Index("r", 2)), (Node("A", ("l", "r")),), ("l", "r"))
    with pytest.raises(SizeError, match="'d' has no size for l"):
        minimal_cut(diagram, ("l",), ("r",))


@given(st.integers(1, 10**6))
def test_prime_factors_multiply_to_the_number(number: int) -> None:
    factors = prime_factors(number)
    assert math.prod(factors) == number
    assert all(
        all(factor % other for other in range(2, math.isqrt(factor) + 1)) for factor in factors
    )
