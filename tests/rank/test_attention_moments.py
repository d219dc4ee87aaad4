"""Attention by moments: the same matrices as by the definition, and the ranks they have."""

import itertools
import pickle

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import PrimeError
from rankscope.rank import (
    MomentFunction,
    Partition,
    Residues,
    SelfAttention,
    SplitFunction,
    draw_residues,
    rank_modulo,
)

PRIME = 16777213
# Both sides of the limits of the arithmetic: 2^25 in the kernel, 2^31 at the top.
PRIMES = (1009, 8388593, 16777213, 33554393, 33554467, 1073741789, 2147483647)
ROWS, COLUMNS = numpy.array([0, 5, 2]), numpy.array([7, 1])


Case = tuple[dict[str, int | bool | None], list[int]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    degree = draw(st.sampled_from([3, 3, 3, 5, 7]))
    num_tokens = draw(st.integers(2, 5))
    arguments: dict[str, int | bool | None] = {
        "depth": draw(st.integers(1, 3 if degree == 3 else 2)),
        "width": draw(st.integers(1, 4)),
        "heads": draw(st.integers(1, 3)) if degree == 3 else 1,
        "head_size": draw(st.integers(1, 4)) if degree == 3 else None,
        "num_tokens": num_tokens,
        "embedding_rank": draw(st.none() | st.integers(1, 5)),
        "degree": degree,
        "output_position": draw(st.integers(0, num_tokens - 1)),
        "has_positions": draw(st.booleans()),
    }
    count = draw(st.integers(1, num_tokens - 1))
    left = draw(st.permutations(range(num_tokens)))[:count]
    return arguments, left


def both(case: Case, prime: int, seed: int = 0) -> tuple[SplitFunction, SplitFunction]:
    arguments, left = case
    network = SelfAttention(**arguments)  # type: ignore[arg-type]
    partition = Partition.of(left, order=network.num_positions)
    return (
        network.split(partition, seed=seed, prime=prime),
        network.reference_split(partition, seed=seed, prime=prime),
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(case=cases(), prime=st.sampled_from(PRIMES), seed=st.integers(0, 9))
def test_moments_give_the_matrix_of_the_definition(case: Case, prime: int, seed: int) -> None:
    found, expected = both(case, prime, seed)
    assert isinstance(found, MomentFunction)
    assert found.num_grades == expected.num_grades
    values = found.values(ROWS, COLUMNS)
    assert values.shape == (3, 2)
    assert numpy.array_equal(values, expected.values(ROWS, COLUMNS))
    parts = found.graded_values(ROWS, COLUMNS)
    assert parts.min() >= 0
    assert parts.max() < prime
    assert numpy.array_equal(parts.sum(0) % prime, values)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(case=cases(), prime=st.sampled_from(PRIMES[1:]))
def test_grades_are_the_parts_of_each_degree_in_the_right_side(case: Case, prime: int) -> None:
    found, expected = both(case, prime)
    columns = COLUMNS[:1]
    parts = found.graded_values(ROWS, columns)
    assert numpy.array_equal(parts, expected.graded_values(ROWS, columns))


@pytest.mark.parametrize("prime", [PRIME, 2147483647])
@pytest.mark.parametrize("heads", [1, 2])
def test_a_value_does_not_depend_on_the_tile_it_is_computed_in(prime: int, heads: int) -> None:
    network = SelfAttention(depth=2, width=2, heads=heads)
    function = network.split(Partition.interleaved(4), seed=1, prime=prime)
    columns = numpy.arange(521)  # three blocks of lanes, the last one short
    whole = function.graded_values(numpy.arange(3), columns)
    for chosen in (columns[255:257], columns[511:513], columns[-1:]):
        part = function.graded_values(numpy.array([2, 0]), chosen)
        assert numpy.array_equal(part, whole[:, [2, 0]][:, :, chosen])


def test_no_points_give_an_empty_matrix() -> None:
    network = SelfAttention(depth=2, width=2)
    function = network.split(Partition.interleaved(4), seed=0, prime=101)
    empty = numpy.arange(0)
    assert function.values(empty, COLUMNS).shape == (0, 2)
    assert function.graded_values(ROWS, empty).shape == (5, 3, 0)


def test_given_weights_are_used() -> None:
    network = SelfAttention(depth=2, width=2)
    partition = Partition.interleaved(4)
    weights = network.draw_weights(7, PRIME)
    found = network.split(partition, seed=0, prime=PRIME, weights=weights)
    expected = network.reference_split(partition, seed=0, prime=PRIME, weights=weights)
    assert numpy.array_equal(found.values(ROWS, COLUMNS), expected.values(ROWS, COLUMNS))
    drawn = network.split(partition, seed=0, prime=PRIME)
    assert not numpy.array_equal(found.values(ROWS, COLUMNS), drawn.values(ROWS, COLUMNS))


def test_it_travels_to_other_machines_as_a_few_kilobytes() -> None:
    network = SelfAttention(depth=3, width=4, embedding_rank=5, has_positions=True)
    function = network.split(Partition.interleaved(8), seed=0, prime=PRIME)
    sent = pickle.dumps(function)
    assert len(sent) < 20_000
    again = pickle.loads(sent)
    assert numpy.array_equal(again.values(ROWS, COLUMNS), function.values(ROWS, COLUMNS))


# Ranks -------------------------------------------------------------------------------------------


def measured(network: SelfAttention, partition: Partition | None = None) -> int:
    """The rank of more samples than the proved bound."""
    split = Partition.interleaved(network.num_positions) if partition is None else partition
    upper = network.upper_bound(split).value
    assert upper is not None
    points = numpy.arange(upper + 5)
    function = network.split(split, seed=0, prime=PRIME)
    return rank_modulo(function.values(points, points), PRIME)


@pytest.mark.parametrize(("width", "heads"), [
    (width, heads) for width in range(1, 7) for heads in range(1, width + 1) if width % heads == 0
])  # fmt: skip
def test_one_layer_has_rank_width_plus_one(width: int, heads: int) -> None:
    for num_tokens in (2, 4):
        network = SelfAttention(depth=1, width=width, heads=heads, num_tokens=num_tokens)
        assert measured(network) == width + 1


@pytest.mark.parametrize(("depth", "width", "heads", "expected"), [
    (2, 1, 1, {2: 5, 4: 5, 6: 5}),
    (2, 2, 1, {2: 15, 4: 18, 6: 18}),
    (2, 2, 2, {2: 15, 4: 17, 6: 17}),
    (2, 3, 1, {2: 35, 4: 49, 6: 49}),
    (2, 4, 1, {2: 70, 4: 110, 8: 110}),
    (2, 4, 2, {2: 70, 4: 107, 8: 107}),
    (3, 2, 1, {2: 105, 4: 232}),
])  # fmt: skip
def test_deeper_networks_have_the_ranks_of_the_specification(
    depth: int, width: int, heads: int, expected: dict[int, int]
) -> None:
    for num_tokens, rank in expected.items():
        network = SelfAttention(depth=depth, width=width, heads=heads, num_tokens=num_tokens)
        assert measured(network) == rank


@pytest.mark.parametrize(("width", "heads"), [(4, 1), (4, 2), (6, 1), (6, 2)])
def test_the_embedding_rank_caps_the_rank_whatever_the_width(width: int, heads: int) -> None:
    for num_tokens, rank in ((2, 15), (4, 18)):
        network = SelfAttention(
            depth=2, width=width, heads=heads, num_tokens=num_tokens, embedding_rank=2
        )
        assert measured(network) == rank


@pytest.mark.parametrize(("depth", "width", "heads", "head_size", "expected"), [
    (2, 2, 1, 4, 18), (2, 2, 4, 1, 18),
    (1, 4, 1, 2, 3), (1, 4, 1, 1, 2),
    (2, 4, 4, 1, 85), (2, 4, 6, 1, 100), (2, 4, 8, 1, 107), (2, 4, 16, 1, 110),
    (2, 4, 2, 2, 107), (2, 4, 3, 2, 110), (2, 3, 3, 1, 43), (2, 3, 4, 1, 46), (2, 3, 6, 1, 49),
])  # fmt: skip
def test_heads_cost_rank_and_more_of_them_win_it_back(
    depth: int, width: int, heads: int, head_size: int, expected: int
) -> None:
    network = SelfAttention(
        depth=depth, width=width, heads=heads, head_size=head_size, num_tokens=4
    )
    assert measured(network) == expected


@pytest.mark.parametrize(("degree", "width", "expected"), [(5, 2, 6), (5, 3, 10), (9, 2, 18)])
def test_chains_have_the_rank_of_their_number_of_factors(
    degree: int, width: int, expected: int
) -> None:
    assert measured(SelfAttention(depth=1, width=width, degree=degree)) == expected


@pytest.mark.parametrize(("left", "expected"), [((0,), 39), ((0, 1), 43)])
def test_on_unequal_sides_it_matters_where_the_output_stands(
    left: tuple[int, ...], expected: int
) -> None:
    network = SelfAttention(depth=2, width=3, num_tokens=3)
    partition = Partition.of(left, order=3)
    assert measured(network, partition) == expected
    assert measured(network, partition.swapped) == expected


@pytest.mark.parametrize(("depth", "width", "num_tokens", "num_templates", "expected"), [
    (1, 2, 4, 4, 3), (2, 2, 4, 6, 18), (2, 3, 4, 7, 28), (2, 2, 6, 3, 10),
])  # fmt: skip
def test_all_balanced_partitions_of_a_grid_have_the_same_rank(
    depth: int, width: int, num_tokens: int, num_templates: int, expected: int
) -> None:
    network = SelfAttention(depth=depth, width=width, num_tokens=num_tokens)
    templates = draw_residues(0, "templates", (num_templates, width), PRIME)
    words = numpy.array(list(itertools.product(range(num_templates), repeat=num_tokens)))
    values: Residues = network.evaluate_modulo(
        network.draw_weights(0, PRIME), templates[words], PRIME
    )
    grid = values.reshape((num_templates,) * num_tokens)
    for left in itertools.combinations(range(num_tokens), num_tokens // 2):
        partition = Partition.of(left, order=num_tokens)
        matrix = grid.transpose(partition.left + partition.right)
        assert (
            rank_modulo(matrix.reshape(num_templates ** (num_tokens // 2), -1), PRIME) == expected
        )


@settings(deadline=None, max_examples=30)
@given(
    depth=st.integers(1, 2),
    width=st.integers(1, 4),
    heads=st.integers(1, 3),
    head_size=st.integers(1, 4),
    sides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    options=st.sampled_from([{}, {"embedding_rank": 2}, {"has_positions": True}]),
)
def test_the_rank_lies_between_the_proved_bounds_and_is_the_sum_over_grades(
    depth: int,
    width: int,
    heads: int,
    head_size: int,
    sides: tuple[int, int],
    options: dict[str, int],
) -> None:
    network = SelfAttention(
        depth=depth,
        width=width,
        heads=heads,
        head_size=head_size,
        num_tokens=sum(sides),
        **options,  # type: ignore[arg-type]
    )
    partition = Partition.of(range(sides[0]), order=sum(sides))
    rank = measured(network, partition)
    assert network.upper_bound(partition).holds_for(rank)
    lower = network.lower_bound(partition)
    assert lower is None or lower.holds_for(rank)
    bounds = network.grade_upper_bounds(partition) or (rank,)
    points = numpy.arange(max(bounds) + 3)
    parts = network.split(partition, seed=0, prime=PRIME).graded_values(points, points)
    ranks = [rank_modulo(part, PRIME) for part in parts]
    assert sum(ranks) == rank
    assert all(found <= bound for found, bound in zip(ranks, bounds, strict=True))


# Refusals ----------------------------------------------------------------------------------------


def test_what_is_no_prime_or_too_small_or_too_large_is_refused() -> None:
    network = SelfAttention(depth=3, width=2)
    partition = Partition.interleaved(4)
    with pytest.raises(PrimeError, match="MomentFunction: 1001 is not a prime"):
        network.split(partition, seed=0, prime=1001)
    with pytest.raises(PrimeError, match="below 2147483648, got 2147483659"):
        network.split(partition, seed=0, prime=2147483659)
    with pytest.raises(PrimeError, match="degrees up to 13 needs a larger prime, got 13"):
        network.split(partition, seed=0, prime=13)
