"""Weights that make the output one monomial, their rank, and what it disproves."""

import itertools
import math
from collections import Counter

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import (
    AttentionSizes,
    counting_upper_bound,
    layers_for_all_pairs,
    monomial_lower_bound,
    narrow_counting_upper_bound,
    published_upper_bound,
    rank_modulo,
)
from rankscope.theorem import Status

PRIME = 16_777_213
Pair = tuple[int, int]


def schedule(heads: int, depth: int) -> list[list[Pair]]:
    """For each layer and head the entry of the Gram matrix that it multiplies by."""
    cover = [[(h, (h + step) % heads) for h in range(heads)] for step in range(heads // 2 + 1)]
    spread = [
        [((h + 3**power) % heads, (h + 2 * 3**power) % heads) for h in range(heads)]
        for power in range(layers_for_all_pairs(heads) - len(cover))
    ]
    cubes = [[(h, h) for h in range(heads)]] * (depth - len(cover) - len(spread))
    return [*cover, *spread, *cubes]


def exponents(heads: int, depth: int) -> list[Counter[Pair]]:
    """For each head how often its coordinate is multiplied by each entry."""
    found = [Counter[Pair]() for _ in range(heads)]
    for layer in schedule(heads, depth):
        found = [
            found[h] + found[i] + found[j] + Counter({(min(i, j), max(i, j)): 1})
            for h, (i, j) in enumerate(layer)
        ]
    return found


@settings(deadline=None)
@given(heads=st.integers(1, 12), extra=st.integers(0, 5))
def test_every_head_holds_every_entry_and_further_layers_cube_it(heads: int, extra: int) -> None:
    depth = layers_for_all_pairs(heads) + extra
    pairs = set(itertools.combinations_with_replacement(range(heads), 2))
    for powers in exponents(heads, depth):
        assert set(powers) == pairs
        assert min(powers.values()) >= 3**extra
        assert powers.total() == (3**depth - 1) // 2
    bound = monomial_lower_bound(AttentionSizes(depth, heads, heads))
    assert bound.log3 >= len(pairs) * math.log(3**extra + 1, 3) - 1e-9


@pytest.mark.parametrize(("heads", "depth"), [(1, 2), (1, 4), (2, 3), (3, 3)])
def test_the_network_with_these_weights_has_the_rank_of_its_monomial(
    heads: int, depth: int
) -> None:
    size = math.prod(power + 1 for power in exponents(heads, depth)[0].values())
    own, other = numpy.random.default_rng(0).integers(PRIME, size=(2, size + 3, heads, heads))
    rows = []
    for tokens in own:
        # The layer as printed, token by token: O_h = e_h, V_h = e_i, K_h = e_j, Q_h = e_h.
        state = numpy.concatenate([numpy.broadcast_to(tokens, other.shape), other], axis=1)
        for layer in schedule(heads, depth):
            scores = [
                (state[:, :, i] * state[:, :, j] % PRIME).sum(axis=1, keepdims=True) % PRIME
                for i, j in layer
            ]
            state = numpy.stack([state[:, :, h] * scores[h] % PRIME for h in range(heads)], axis=2)
        rows.append(state[:, 0, 0])
    values = numpy.stack(rows)
    assert rank_modulo(values, PRIME) == size
    assert monomial_lower_bound(AttentionSizes(depth, heads, heads)).holds_for(size)


@settings(deadline=None, max_examples=60)
@given(
    depth=st.integers(1, 40), width=st.integers(1, 30), heads=st.integers(1, 40),
    head_size=st.integers(1, 4), rank=st.integers(1, 40),
)  # fmt: skip
def test_it_stays_below_the_counting_bound(
    depth: int, width: int, heads: int, head_size: int, rank: int
) -> None:
    sizes = AttentionSizes(depth, width, heads, head_size, embedding_rank=rank)
    assert monomial_lower_bound(sizes).log3 <= counting_upper_bound(sizes).log3
    if sizes.factors <= 400:
        assert monomial_lower_bound(sizes).log3 <= narrow_counting_upper_bound(sizes).log3


@pytest.mark.parametrize(("width", "heads"), [(16, 8), (20, 10), (64, 32), (30, 15)])
def test_the_disputed_upper_bound_fails_for_many_heads_and_layers(width: int, heads: int) -> None:
    # As many tokens on each side as there are heads are enough.
    fails = []
    for depth in range(1, 200):
        sizes = AttentionSizes(depth, width, heads, own_tokens=heads, other_tokens=heads)
        upper = published_upper_bound(sizes)
        if upper is not None and monomial_lower_bound(sizes).log3 > upper.log3:
            assert upper.theorem.status is Status.DISPUTED
            fails.append(depth)
    assert fails
    assert fails == list(range(fails[0], 200))


def test_chains_have_no_heads() -> None:
    with pytest.raises(BoundError, match="degree 3, got 5"):
        monomial_lower_bound(AttentionSizes(2, 4, degree=5))
