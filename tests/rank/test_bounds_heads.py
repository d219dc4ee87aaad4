"""Heads and their size cap the rank through the forms of the Gram matrix they can see."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import (
    AttentionSizes,
    Partition,
    SelfAttention,
    counting_upper_bound,
    heads_terms,
    heads_upper_bound,
    measure_rank,
    narrow_counting_upper_bound,
    rank_modulo,
)
from rankscope.rank.bounds.attention import visible_forms

PRIME = 16777213


@pytest.mark.parametrize(
    ("width", "heads", "head_size", "measured"),
    [
        (4, 4, 1, 85),
        (4, 6, 1, 100),
        (4, 8, 1, 107),
        (4, 16, 1, 110),
        (4, 2, 2, 107),
        (4, 3, 2, 110),
        (3, 3, 1, 43),
        (3, 4, 1, 46),
        (3, 6, 1, 49),
        (2, 2, 1, 17),
    ],
)
def test_the_bound_equals_the_ranks_measured_before_it_was_known(
    width: int, heads: int, head_size: int, measured: int
) -> None:
    sizes = AttentionSizes(2, width, heads, head_size, own_tokens=2, other_tokens=2)
    assert heads_upper_bound(sizes).value == measured


@settings(deadline=None, max_examples=15)
@given(
    width=st.integers(1, 4),
    heads=st.integers(1, 5),
    head_size=st.integers(1, 4),
    embedding_rank=st.integers(1, 4),
)
def test_depth_two_attains_the_bound_up_to_width_four(
    width: int, heads: int, head_size: int, embedding_rank: int
) -> None:
    network = SelfAttention(
        depth=2,
        width=width,
        heads=heads,
        head_size=head_size,
        num_tokens=2 * width,
        embedding_rank=embedding_rank,
    )
    partition = Partition.interleaved(2 * width)
    upper = network.upper_bound(partition)
    assert upper is not None
    assert measure_rank(network, partition).lower == upper.value


@settings(deadline=None, max_examples=40)
@given(
    depth=st.integers(1, 4),
    width=st.integers(1, 6),
    heads=st.integers(1, 6),
    head_size=st.integers(1, 6),
)
def test_it_never_exceeds_the_counting_bounds(
    depth: int, width: int, heads: int, head_size: int
) -> None:
    sizes = AttentionSizes(depth, width, heads, head_size)
    bound = heads_upper_bound(sizes)
    assert bound.holds_for(sum(heads_terms(sizes)))
    for other in (narrow_counting_upper_bound(sizes), counting_upper_bound(sizes)):
        assert other.holds_for(sum(heads_terms(sizes)))


@settings(deadline=None, max_examples=40)
@given(rank=st.integers(1, 6), head_size=st.integers(1, 6), heads=st.integers(1, 4))
def test_random_heads_see_as_many_forms_as_are_counted(
    rank: int, head_size: int, heads: int
) -> None:
    draw = numpy.random.default_rng(0)
    values, keys = draw.integers(-999, 999, (2, heads, head_size, rank))
    products = [
        numpy.outer(value, key) + numpy.outer(key, value)
        for head in range(heads)
        for value in values[head]
        for key in keys[head]
    ]
    flat = numpy.array(products).reshape(len(products), -1)
    sizes = AttentionSizes(2, rank, heads, head_size)
    assert rank_modulo(flat, PRIME) == visible_forms(sizes)[0]


def test_one_head_as_wide_as_the_tokens_loses_nothing() -> None:
    for width in range(1, 6):
        sizes = AttentionSizes(3, width)
        assert heads_upper_bound(sizes).value == counting_upper_bound(sizes).value


def test_chains_have_no_heads() -> None:
    with pytest.raises(BoundError, match="degree 3, got 5"):
        heads_upper_bound(AttentionSizes(1, 3, degree=5))
