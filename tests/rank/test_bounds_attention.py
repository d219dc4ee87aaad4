"""Published and own bounds on self-attention."""

import contextlib
import itertools
import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rankscope.errors import BoundError
from rankscope.rank import (
    DEEPEST,
    LARGEST,
    AttentionSizes,
    counting_upper_bound,
    heads_upper_bound,
    monomial_lower_bound,
    multiset_lower_bound,
    narrow_counting_upper_bound,
    published_lower_bound,
    published_upper_bound,
    quadric_lower_bound,
    rank_modulo,
    word_upper_bound,
)
from rankscope.theorem import Status

PRIME = 16_777_213
Matrices = NDArray[numpy.int64]


@pytest.mark.parametrize(("depth", "width", "heads", "low", "high"), [
    (1, 4, 1, 0.456, 1.465), (2, 16, 1, 1.834, 10.316), (3, 64, 1, 6.421, 49.396),
    (6, 100, 1, 13.41, 652.13), (12, 768, 12, 1681.57, 11313.91),
])  # fmt: skip
def test_the_published_bounds_have_the_values_of_the_specification(
    depth: int, width: int, heads: int, low: float, high: float
) -> None:
    lower = published_lower_bound(AttentionSizes(depth, width, heads))
    upper = published_upper_bound(AttentionSizes(depth, width, heads))
    assert lower is not None
    assert upper is not None
    # The specification prints three digits in the first regime, two in the second.
    tolerance = 6e-4 if 3**depth < width else 6e-3
    assert math.isclose(lower.log3, low, rel_tol=0, abs_tol=tolerance)
    assert math.isclose(upper.log3, high, rel_tol=0, abs_tol=tolerance)


@pytest.mark.parametrize("sizes", [
    AttentionSizes(2, 9), AttentionSizes(2, 4, heads=4), AttentionSizes(2, 4, heads=8),
    AttentionSizes(2, 4, degree=5), AttentionSizes(2, 4, heads=2, head_size=4),
])  # fmt: skip
def test_no_theorem_applies_between_the_regimes_or_off_the_published_network(
    sizes: AttentionSizes,
) -> None:
    assert published_lower_bound(sizes) is None
    assert published_upper_bound(sizes) is None


def test_a_low_embedding_rank_leaves_only_the_upper_bound() -> None:
    sizes = AttentionSizes(3, 4, embedding_rank=2)
    assert published_lower_bound(sizes) is None
    assert published_upper_bound(sizes) == published_upper_bound(AttentionSizes(3, 4))


def test_a_negative_published_lower_bound_is_clipped_at_zero() -> None:
    lower = published_lower_bound(AttentionSizes(6, 100, heads=50))
    assert lower is not None
    assert lower.log3 == 0


@settings(deadline=None)
@given(depth=st.integers(2, 30), heads=st.integers(1, 40), half=st.integers(1, 40))
def test_the_published_lower_bound_weakens_the_multiset_coefficient(
    depth: int, heads: int, half: int
) -> None:
    # d - H = 2 half H is even, so that the floor takes nothing away.
    sizes = AttentionSizes(depth, (2 * half + 1) * heads, heads)
    lower = published_lower_bound(sizes)
    if lower is not None:
        assert lower.log3 <= multiset_lower_bound(sizes).log3 + 1e-9 * max(1.0, lower.log3)


@settings(deadline=None)
@given(
    depth=st.integers(1, 30), width=st.integers(2, 60), tokens=st.sampled_from((1, 60)),
    data=st.data(),
)  # fmt: skip
def test_the_published_lower_bound_stays_below_the_count(
    depth: int, width: int, tokens: int, data: st.DataObject
) -> None:
    heads = data.draw(st.sampled_from([n for n in range(1, width) if width % n == 0]))
    sizes = AttentionSizes(depth, width, heads, own_tokens=tokens, other_tokens=tokens)
    lower = published_lower_bound(sizes)
    if lower is not None:
        assert lower.log3 <= counting_upper_bound(sizes).log3


@pytest.mark.parametrize(("width", "depth"), [
    (8, 7), (10, 6), (12, 6), (16, 6), (20, 6), (30, 6), (50, 6),
])  # fmt: skip
def test_the_count_first_exceeds_the_disputed_bound_at_these_depths(width: int, depth: int) -> None:
    # Evidence for an erratum, and no proof: the count is an upper bound as well.
    deep = [n for n in range(1, depth + 1) if 3**n > width]
    uppers = {n: published_upper_bound(AttentionSizes(n, width)) for n in deep}
    assert {upper and upper.theorem.status for upper in uppers.values()} == {Status.DISPUTED}
    counts = {n: counting_upper_bound(AttentionSizes(n, width)).log3 for n in deep}
    assert [n for n, upper in uppers.items() if upper and counts[n] > upper.log3] == [depth]


@settings(deadline=None)
@given(depth=st.integers(2, 40), width=st.integers(2, 60), rank=st.integers(2, 60))
def test_lower_bounds_stay_below_the_counting_bound(depth: int, width: int, rank: int) -> None:
    sizes = AttentionSizes(depth, width, embedding_rank=rank)
    assert quadric_lower_bound(sizes).log3 <= counting_upper_bound(sizes).log3
    full = AttentionSizes(depth, width)
    assert multiset_lower_bound(full).log3 <= counting_upper_bound(full).log3
    assert counting_upper_bound(full).log3 <= word_upper_bound(full).log3


def test_the_quadric_bound_has_its_measured_values() -> None:
    values = [quadric_lower_bound(AttentionSizes(2, width)).value for width in (2, 3, 4, 5)]
    values += [quadric_lower_bound(AttentionSizes(3, width)).value for width in (2, 3)]
    assert values == [12, 16, 20, 24, 150, 350]
    assert quadric_lower_bound(AttentionSizes(4, 2)).value == 2940
    assert quadric_lower_bound(AttentionSizes(2, 6, heads=2)).value == 16


def outputs(gram: Matrices, layers: list[list[tuple[Matrices, Matrices]]]) -> Matrices:
    """F_L(G) modulo the prime for pairs (O V, K^T Q), one list of heads for each layer."""
    found = numpy.broadcast_to(numpy.eye(gram.shape[-1], dtype=numpy.int64), gram.shape)
    for heads in layers:
        middle = found @ gram % PRIME @ numpy.swapaxes(found, -1, -2) % PRIME
        terms = [value @ middle % PRIME @ key % PRIME @ found % PRIME for value, key in heads]
        found = numpy.asarray(sum(terms) % PRIME)
    return found


@settings(deadline=None, max_examples=20)
@given(
    depth=st.integers(1, 3), width=st.integers(1, 4), heads=st.integers(1, 3),
    head_size=st.integers(1, 3), seed=st.integers(0, 99),
)  # fmt: skip
def test_attention_is_a_polynomial_in_the_gram_matrix(
    depth: int, width: int, heads: int, head_size: int, seed: int
) -> None:
    draw = numpy.random.default_rng(seed)
    tokens = draw.integers(PRIME, size=(5, width))
    state, layers = tokens, list[list[tuple[Matrices, Matrices]]]()
    for _ in range(depth):
        values, keys, queries = draw.integers(PRIME, size=(3, heads, head_size, width))
        mixing = draw.integers(PRIME, size=(heads, width, head_size))
        following = numpy.zeros_like(state)
        for i, h in itertools.product(range(5), range(heads)):
            for other in state:
                score = (queries[h] @ state[i] % PRIME) @ (keys[h] @ other % PRIME) % PRIME
                value = mixing[h] @ (values[h] @ other % PRIME) % PRIME
                following[i] = (following[i] + score * value) % PRIME
        pairs = [(mixing[h] @ values[h] % PRIME, keys[h].T @ queries[h] % PRIME)
                 for h in range(heads)]  # fmt: skip
        state, layers = following, [*layers, pairs]
    gram = tokens.T @ tokens % PRIME
    assert (outputs(gram, layers) @ tokens.T % PRIME == state.T).all()


@pytest.mark.parametrize(("depth", "width", "head_size", "embedding_rank"), [
    (2, 2, 2, 2), (2, 3, 3, 3), (2, 4, 2, 4), (2, 2, 1, 2), (3, 2, 2, 2), (3, 3, 1, 3),
    (2, 4, 4, 3), (3, 4, 4, 2),
])  # fmt: skip
def test_the_quadric_weights_have_the_rank_of_the_bound(
    depth: int, width: int, head_size: int, embedding_rank: int
) -> None:
    size = min(head_size, embedding_rank)
    # The second coordinate first, so that it is always kept.
    kept = numpy.eye(width, dtype=numpy.int64)[[1, 0, *range(2, width)]][:size]
    projection = kept.T @ kept
    first = numpy.zeros((width, width), dtype=numpy.int64)
    first[1, 0] = 1
    layers = [[(projection, key)] for key in (first, *[projection] * (depth - 1))]
    bound = quadric_lower_bound(
        AttentionSizes(depth, width, head_size=head_size, embedding_rank=embedding_rank,
                       own_tokens=2, other_tokens=2)
    ).value  # fmt: skip
    assert bound is not None
    own, other = numpy.random.default_rng(0).integers(PRIME, size=(2, bound + 5, 2, width))
    own[..., embedding_rank:] = other[..., embedding_rank:] = 0
    grams = [numpy.swapaxes(side, 1, 2) @ side % PRIME for side in (own, other)]
    pairs = outputs((grams[0][:, None] + grams[1][None]) % PRIME, layers)[..., 1, :]
    values = (pairs * own[:, None, 0] % PRIME).sum(-1) % PRIME
    assert rank_modulo(values, PRIME) == bound


def test_words_give_a_bound_at_every_depth_and_any_head_size() -> None:
    assert word_upper_bound(AttentionSizes(2, 4)).value == 625
    assert word_upper_bound(AttentionSizes(2, 9)).value == 10_000
    assert word_upper_bound(AttentionSizes(2, 4, heads=3, head_size=5)).value == 18**4
    deep = word_upper_bound(AttentionSizes(20, 8))
    assert deep.value is None
    assert math.isclose(deep.log3, (3**20 - 1))  # (3^20 - 1) / 2 factors, each log3(9) = 2


def test_a_huge_multiset_bound_is_given_by_its_logarithm() -> None:
    bound = multiset_lower_bound(AttentionSizes(40, 2001))
    exact = math.comb(999 + 3**38, 999)
    assert bound.value is None
    assert math.isclose(bound.log3, math.log(exact) / math.log(3), rel_tol=1e-12)
    assert multiset_lower_bound(AttentionSizes(2, 2)).value == 0


def test_bounds_outside_their_assumptions_are_refused() -> None:
    with pytest.raises(BoundError, match="degree 3, got 5"):
        word_upper_bound(AttentionSizes(2, 4, degree=5))
    with pytest.raises(BoundError, match="got depth 1, 1 heads, width 4"):
        multiset_lower_bound(AttentionSizes(1, 4))
    with pytest.raises(BoundError, match="got depth 2, embedding rank 4, 1 tokens, degree 3"):
        quadric_lower_bound(AttentionSizes(2, 4, own_tokens=1))
    with pytest.raises(BoundError, match="got depth 3, embedding rank 1, 4 tokens, degree 3"):
        quadric_lower_bound(AttentionSizes(3, 4, embedding_rank=1))


@settings(deadline=None, max_examples=40)
@given(
    depth=st.integers(1, 12),
    width=st.integers(2, 40),
    own=st.integers(1, 40),
    other=st.integers(1, 40),
)
def test_theorems_about_balanced_splits_are_silent_on_others(
    depth: int, width: int, own: int, other: int
) -> None:
    sizes = AttentionSizes(depth, width, own_tokens=own, other_tokens=other)
    is_covered = own == other and 3**depth != width
    assert (published_lower_bound(sizes) is not None) == is_covered
    assert (published_upper_bound(sizes) is not None) == is_covered
    if own != other and depth > 1:
        with pytest.raises(BoundError, match=f"sides of one size.* sides of {own} and {other}"):
            multiset_lower_bound(sizes)


@settings(deadline=None, max_examples=6)
@given(
    depth=st.sampled_from([1, 640, 650, 4000, DEEPEST]),
    width=st.sampled_from([1, 8, 12288, LARGEST]),
    heads=st.sampled_from([1, 2, 96]),
    head_size=st.sampled_from([1, 64, LARGEST]),
)
def test_no_allowed_size_overflows(depth: int, width: int, heads: int, head_size: int) -> None:
    sizes = AttentionSizes(depth, width, heads, head_size=head_size)
    for bound in (
        published_lower_bound,
        published_upper_bound,
        multiset_lower_bound,
        quadric_lower_bound,
        monomial_lower_bound,
        word_upper_bound,
        counting_upper_bound,
        narrow_counting_upper_bound,
        heads_upper_bound,
    ):
        with contextlib.suppress(BoundError):
            assert str(bound(sizes))
