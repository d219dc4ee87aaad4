"""The counting bound against its definition, its closed forms and brute force."""

import itertools
import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import (
    AttentionSizes,
    FreeCount,
    PolynomialCount,
    counting_terms,
    counting_upper_bound,
    covariant_count,
    invariant_count,
    multiset,
    narrow_counting_upper_bound,
    sum_of_minima,
    weyl_dimension,
    word_count,
)

PRIME = 1_000_003


def count(depth: int, rank: int, own: int, other: int) -> int:
    sizes = AttentionSizes(depth, rank, own_tokens=own, other_tokens=other)
    value = counting_upper_bound(sizes).value
    assert value is not None
    return value


def rank_modulo(rows: list[list[int]]) -> int:
    found: list[tuple[int, list[int]]] = []
    for row in rows:
        for pivot, reduced in found:
            factor = row[pivot]
            row = [(a - factor * b) % PRIME for a, b in zip(row, reduced, strict=True)]
        pivot = next((i for i, entry in enumerate(row) if entry), -1)
        if pivot >= 0:
            inverse = pow(row[pivot], -1, PRIME)
            found.append((pivot, [entry * inverse % PRIME for entry in row]))
    return len(found)


def independent_functions(rank: int, tokens: int, degree: int, *, with_token: bool) -> int:
    """Rank of sampled monomials in the Gram matrix, times a token's coordinates if asked."""
    draw = random.Random(0)
    pairs = list(itertools.combinations_with_replacement(range(rank), 2))
    monomials = list(itertools.combinations_with_replacement(range(len(pairs)), degree))
    width = len(monomials) * (rank if with_token else 1)
    rows = []
    for _ in range(width + 3):
        vectors = [[draw.randrange(PRIME) for _ in range(rank)] for _ in range(tokens)]
        gram = [sum(v[i] * v[j] for v in vectors) % PRIME for i, j in pairs]
        values = [math.prod(gram[i] for i in monomial) % PRIME for monomial in monomials]
        scales = vectors[0] if with_token else [1]
        rows.append([scale * value % PRIME for scale in scales for value in values])
    return rank_modulo(rows)


@pytest.mark.parametrize(("rank", "tokens", "degree"), [
    (2, 1, 3), (2, 2, 3), (3, 1, 2), (3, 2, 3), (3, 3, 2), (4, 2, 2),
])  # fmt: skip
def test_invariants_are_as_many_as_elimination_finds(rank: int, tokens: int, degree: int) -> None:
    assert invariant_count(rank, tokens, degree) == independent_functions(
        rank, tokens, degree, with_token=False
    )


@pytest.mark.parametrize(("rank", "tokens", "degree"), [
    (2, 1, 2), (2, 2, 2), (3, 1, 1), (3, 2, 2), (3, 3, 1), (4, 2, 1),
])  # fmt: skip
def test_covariants_are_as_many_as_elimination_finds(rank: int, tokens: int, degree: int) -> None:
    assert covariant_count(rank, tokens, degree) == independent_functions(
        rank, tokens, degree, with_token=True
    )


@settings(deadline=None)
@given(rank=st.integers(1, 5), degree=st.integers(0, 5))
def test_many_tokens_and_one_token_have_closed_forms(rank: int, degree: int) -> None:
    pairs = rank * (rank + 1) // 2
    assert invariant_count(rank, rank, degree) == multiset(pairs, degree)
    assert covariant_count(rank, rank + 2, degree) == rank * multiset(pairs, degree)
    assert invariant_count(rank, 1, degree) == multiset(rank, 2 * degree)
    assert covariant_count(rank, 1, degree) == multiset(rank, 2 * degree + 1)


@pytest.mark.parametrize(("rank", "tokens"), [(3, 2), (4, 2), (4, 3), (5, 2), (6, 1)])
def test_both_counts_are_polynomials_below_the_dimension(rank: int, tokens: int) -> None:
    dimension = tokens * rank - tokens * (tokens - 1) // 2
    for function in (invariant_count, covariant_count):
        values = tuple(function(rank, tokens, degree) for degree in range(dimension + 6))
        through = PolynomialCount.through(values[:dimension])
        assert [through.value(degree) for degree in range(dimension + 6)] == list(values)


@settings(deadline=None, max_examples=40)
@given(
    depth=st.integers(1, 3), rank=st.integers(1, 4), own=st.integers(1, 5), other=st.integers(1, 5)
)
def test_the_bound_is_the_sum_of_its_definition(
    depth: int, rank: int, own: int, other: int
) -> None:
    factors = (3**depth - 1) // 2
    expected = sum(
        min(invariant_count(rank, other, k), covariant_count(rank, own, factors - k))
        for k in range(factors + 1)
    )
    assert count(depth, rank, own, other) == expected
    # More tokens never lower the bound, and from `rank` on they never raise it.
    assert count(depth, rank, own + 1, other + 1) >= expected
    assert count(depth, rank, rank, rank) >= expected


def test_the_reference_values_of_the_specification_come_out() -> None:
    assert [count(1, width, width, width) for width in range(1, 7)] == [2, 3, 4, 5, 6, 7]
    assert [count(2, width, 1, 1) for width in (1, 2, 3, 4)] == [5, 15, 35, 70]
    assert [count(2, width, width, width) for width in (1, 2, 3, 4)] == [5, 18, 49, 110]
    assert [count(3, 2, 1, 1), count(3, 2, 2, 2), count(3, 4, 4, 4)] == [105, 232, 31460]
    assert [count(2, 3, 1, 2), count(2, 3, 2, 1)] == [41, 43]


@pytest.mark.parametrize(("degree", "width", "value"), [(5, 2, 6), (5, 3, 10), (9, 2, 18)])
def test_chains_of_another_degree_depend_on_their_factors_only(
    degree: int, width: int, value: int
) -> None:
    assert counting_upper_bound(AttentionSizes(1, width, degree=degree)).value == value


@settings(deadline=None)
@given(depth=st.integers(1, 5), rank=st.integers(1, 5))
def test_one_token_on_each_side_gives_one_binomial(depth: int, rank: int) -> None:
    factors = (3**depth - 1) // 2
    assert count(depth, rank, 1, 1) == math.comb(factors + rank, rank)
    assert count(depth, 1, 4, 4) == factors + 1


@settings(deadline=None, max_examples=40)
@given(
    variables=st.integers(1, 40),
    factor=st.integers(1, 40),
    other=st.integers(1, 40),
    total=st.integers(1, 300),
)
def test_the_logarithm_agrees_with_the_integer(
    variables: int, factor: int, other: int, total: int
) -> None:
    exact = sum(
        min(multiset(variables, k), factor * multiset(other, total - k)) for k in range(total + 1)
    )
    magnitude = sum_of_minima(FreeCount(variables), FreeCount(other, factor), total)
    assert magnitude.value == exact


@pytest.mark.parametrize(("depth", "width"), [(10, 140), (9, 300), (30, 60), (200, 14)])
def test_beyond_four_thousand_digits_the_logarithm_is_that_of_the_exact_sum(
    depth: int, width: int
) -> None:
    pairs, factors = width * (width + 1) // 2, (3**depth - 1) // 2
    low, high = 0, factors
    while low < high:
        middle = (low + high + 1) // 2
        if multiset(pairs, middle) <= width * multiset(pairs, factors - middle):
            low = middle
        else:
            high = middle - 1
    exact = math.comb(low + pairs, pairs) + width * math.comb(factors - low - 1 + pairs, pairs)
    bound = counting_upper_bound(AttentionSizes(depth, width))
    assert bound.value is None
    assert math.isclose(bound.log3, math.log(exact) / math.log(3), rel_tol=1e-12)


def test_the_largest_sizes_give_a_finite_logarithm_between_those_of_the_crossing() -> None:
    bound = counting_upper_bound(AttentionSizes(96, 12288))
    pairs, factors = 12288 * 12289 // 2, (3**96 - 1) // 2
    # All functions up to half the degree, and as many again: the meeting point is near half.
    half = math.log(factors / 2) - math.log(pairs) + 1
    assert bound.value is None
    assert math.isclose(bound.log3, pairs * half / math.log(3), rel_tol=1e-6)
    assert json.dumps(bound.to_dict(), allow_nan=False)


@settings(deadline=None)
@given(length=st.integers(0, 8), head_size=st.integers(1, 4))
def test_words_are_weighed_by_their_letter_changes(length: int, head_size: int) -> None:
    weights = [0] * (length + 1)
    for word in itertools.product("AB", repeat=length):
        changes = sum(a != b for a, b in itertools.pairwise((*word, "A")))
        weights[word.count("B")] += head_size**changes
    assert [word_count(length, k, head_size) for k in range(length + 1)] == weights
    assert sum(weights) == (1 + head_size) ** length


def test_narrow_heads_lower_the_bound() -> None:
    assert narrow_counting_upper_bound(AttentionSizes(2, 4, head_size=1)).value == 16
    for heads, head_size in ((1, 2), (1, 1), (2, 1), (4, 1), (9, 3)):
        sizes = AttentionSizes(1, 4, heads=heads, head_size=head_size)
        assert narrow_counting_upper_bound(sizes).value == 1 + min(4, heads * head_size)


@settings(deadline=None, max_examples=30)
@given(width=st.integers(1, 5), extra=st.integers(0, 5), heads=st.integers(1, 3))
def test_width_and_heads_beyond_the_embedding_rank_change_nothing(
    width: int, extra: int, heads: int
) -> None:
    wide = AttentionSizes(
        3, width + extra, heads, 2, embedding_rank=width, own_tokens=width, other_tokens=width
    )
    assert counting_upper_bound(wide).value == count(3, width, width, width)


def test_a_shape_with_more_rows_than_dimensions_has_none() -> None:
    assert weyl_dimension((1, 1, 1), 2) == 0


def test_too_large_sums_are_refused_with_the_way_out() -> None:
    with pytest.raises(BoundError, match=r"2048 tokens .* rank 12288 .* at least 12288 tokens"):
        counting_upper_bound(AttentionSizes(96, 12288, own_tokens=12288, other_tokens=2048))
    with pytest.raises(BoundError, match="depth 7 multiplies 1,093 factors, more than 400"):
        narrow_counting_upper_bound(AttentionSizes(7, 4))
    with pytest.raises(BoundError, match="degree 3, got 5"):
        narrow_counting_upper_bound(AttentionSizes(2, 4, degree=5))


@settings(deadline=None, max_examples=50)
@given(
    depth=st.integers(1, 3),
    width=st.integers(1, 4),
    heads=st.integers(1, 3),
    head_size=st.integers(1, 3),
    own=st.integers(1, 4),
    other=st.integers(1, 4),
)
def test_terms_are_what_each_degree_can_carry_and_add_up_to_the_bound(
    depth: int, width: int, heads: int, head_size: int, own: int, other: int
) -> None:
    sizes = AttentionSizes(depth, width, heads, head_size, None, own, other)
    terms, factors = counting_terms(sizes), sizes.factors
    assert sum(terms) == narrow_counting_upper_bound(sizes).value
    for degree, term in enumerate(terms):
        assert term == min(
            invariant_count(width, other, degree),
            covariant_count(width, own, factors - degree),
            heads**factors * word_count(factors, degree, head_size),
        )


def test_terms_of_a_chain_add_up_to_the_plain_count() -> None:
    sizes = AttentionSizes(2, 2, degree=5, own_tokens=2, other_tokens=2)
    terms = counting_terms(sizes)
    assert len(terms) == 13
    assert sum(terms) == counting_upper_bound(sizes).value


def test_terms_of_very_deep_networks_are_refused() -> None:
    with pytest.raises(BoundError, match="counting_terms: depth 7 multiplies 1,093 factors"):
        counting_terms(AttentionSizes(7, 2))
