"""Where one head cannot attain the count, and by how much."""

import itertools

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import (
    AttentionSizes,
    Partition,
    SelfAttention,
    heads_terms,
    rank_modulo,
    zeros_terms,
    zeros_upper_bound,
)
from rankscope.rank.bounds.common_zeros import count_forms, gaps, least_others

PRIME = 16777213


def measured_terms(depth: int, width: int, own: int, other: int) -> list[int]:
    network = SelfAttention(depth=depth, width=width, num_tokens=own + other)
    partition = Partition.of(range(own), order=own + other)
    counted = heads_terms(AttentionSizes(depth, width, own_tokens=own, other_tokens=other))
    points = numpy.arange(max(counted) + 2)
    values = network.split(partition, seed=0, prime=PRIME).graded_values(points, points)
    return [rank_modulo(part, PRIME) for part in values]


@settings(deadline=None, max_examples=15)
@given(
    sizes=st.sampled_from([(2, 2), (2, 3), (2, 4), (3, 2), (1, 3)]),
    own=st.integers(1, 3),
    other=st.integers(1, 3),
)
def test_no_part_exceeds_its_term(sizes: tuple[int, int], own: int, other: int) -> None:
    bounds = zeros_terms(AttentionSizes(*sizes, own_tokens=own, other_tokens=other))
    measured = measured_terms(*sizes, own, other)
    assert all(rank <= bound for rank, bound in zip(measured, bounds, strict=True))


@pytest.mark.parametrize("width", [3, 4, 5])
def test_one_token_beside_two_layers_attains_the_bound(width: int) -> None:
    """The functions of one token lie in the ideal of a plane and a quadric: 2, 10, 30 fewer."""
    sizes = AttentionSizes(2, width, own_tokens=1, other_tokens=2)
    assert measured_terms(2, width, 1, 2) == list(zeros_terms(sizes))
    assert sum(heads_terms(sizes)) - sum(zeros_terms(sizes)) == {3: 2, 4: 10, 5: 30}[width]


def test_depth_three_and_width_four_lose_the_points_of_two_quadrics_in_a_plane() -> None:
    sizes = AttentionSizes(depth=3, width=4)
    lost = [a - b for a, b in zip(heads_terms(sizes), zeros_terms(sizes), strict=True)]
    assert lost == [4 if k == 7 else 0 for k in range(14)]
    assert zeros_upper_bound(sizes).value == 31456
    network = SelfAttention(depth=3, width=4)
    assert network.upper_bound(Partition.interleaved(8)).value == 31456


def test_the_gaps_are_those_of_the_network() -> None:
    """α G M_1 G … x with the matrices of the gaps is the network with identity values."""
    drawn = numpy.random.default_rng(0)
    depth, width = 3, 3
    matrices = {layer: drawn.integers(-3, 4, (width, width)) for layer in range(1, depth + 1)}
    gram = drawn.integers(-3, 4, (width, width))
    gram = (gram + gram.T).astype(object)
    product = numpy.eye(width, dtype=object)
    for layer in range(1, depth + 1):
        product = product @ gram @ product.T @ matrices[layer] @ product
    word = numpy.eye(width, dtype=object)
    turned = _transposed(depth)
    for layer, is_turned in zip((*gaps(depth), 1), (*turned, False), strict=True):
        matrix = matrices[layer].astype(object)
        word = word @ gram @ (matrix.T if is_turned else matrix)
    assert (word == product).all()


def _transposed(depth: int) -> tuple[bool, ...]:
    if depth == 1:
        return ()
    before = _transposed(depth - 1)
    return (*before, False, True, *(not one for one in before[::-1]), False, *before)


@settings(deadline=None, max_examples=20)
@given(depth=st.integers(1, 3), zeros=st.sets(st.integers(0, 3)), there=st.booleans())
def test_the_fewest_matrices_are_those_of_a_search(
    depth: int, zeros: set[int], there: bool
) -> None:
    layers = gaps(depth)

    def survives(others: tuple[int, ...]) -> bool:
        ends = [0 in zeros and not others[0], there and 1 in zeros and not others[-1]]
        between = [
            layer in zeros and not others[at] and not others[at + 1]
            for at, layer in enumerate(layers)
        ]
        return not any((*ends, *between))

    words = itertools.product((0, 1), repeat=len(layers) + 1)
    least = min(sum(word) for word in words if survives(word))
    assert least_others(depth, frozenset(zeros), is_token_there=there) == least


@pytest.mark.parametrize(
    ("variables", "zeros"), [(3, {0, 1}), (4, {0, 1, 2}), (4, {0, 1}), (3, {1})]
)
def test_conditions_are_those_of_random_forms(variables: int, zeros: set[int]) -> None:
    """Multiples of random forms of these degrees miss so many forms of degree 6."""
    degree, drawn = 6, numpy.random.default_rng(1)
    points = drawn.integers(0, 1000, (120, variables))
    rows = []
    for zero in zeros:
        own = 1 if zero == 0 else 2
        form = _monomials(points, own) @ drawn.integers(1, 1000, _size(variables, own)) % PRIME
        rows.append(form * _monomials(points, degree - own).T % PRIME)
    spanned = rank_modulo(numpy.concatenate(rows), PRIME)
    assert _size(variables, degree) - spanned == count_forms(variables, frozenset(zeros), degree)


def _size(variables: int, degree: int) -> int:
    return len(list(itertools.combinations_with_replacement(range(variables), degree)))


def _monomials(points: numpy.ndarray, degree: int) -> numpy.ndarray:
    columns = []
    for chosen in itertools.combinations_with_replacement(range(points.shape[1]), degree):
        column = numpy.ones(len(points), dtype=numpy.int64)
        for place in chosen:
            column = column * points[:, place] % PRIME
        columns.append(column)
    return numpy.stack(columns, axis=1)


def test_several_heads_are_refused() -> None:
    with pytest.raises(BoundError, match="needs one head and degree 3, got 2 heads and degree 3"):
        zeros_upper_bound(AttentionSizes(2, 4, heads=2))
