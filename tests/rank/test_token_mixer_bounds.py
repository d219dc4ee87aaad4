"""Bounds of transformers and recurrences against measured ranks."""

import itertools
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import (
    AttentionSizes,
    Kind,
    Partition,
    PolynomialNetwork,
    PolynomialTransformer,
    Recurrence,
    SharedKeys,
    StateDegrees,
    TokenSide,
    degree_upper_bound,
    heads_terms,
    rank_modulo,
    shared_keys_terms,
    shared_keys_upper_bound,
    state_upper_bound,
)

PRIME = 16777213
LARGEST = 300  # samples on a side: larger ranks are cut off there


def measured(network: PolynomialNetwork, partition: Partition, largest: int = LARGEST) -> int:
    """The rank, or `largest` if it is larger."""
    function, size = network.split(partition, seed=0, prime=PRIME), 32
    while True:
        points = numpy.arange(min(size, largest))
        found = rank_modulo(function.values(points, points), PRIME)
        if found < len(points) or size >= largest:
            return found
        size *= 3


def transformer(**options: Any) -> PolynomialTransformer:
    return PolynomialTransformer(**{"depth": 2, "width": 2, "num_tokens": 4, **options})


@st.composite
def networks(draw: st.DrawFn) -> PolynomialNetwork:
    width, tokens = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    depth = draw(st.integers(1, 2))
    place = draw(st.none() | st.integers(0, tokens - 1))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(list(Kind)))
        return Recurrence(
            kind=kind,
            depth=depth,
            width=width,
            state=draw(st.integers(1, 3)),
            has_input_rate=kind is Kind.DELTA and draw(st.booleans()),
            num_tokens=tokens,
            output_position=place,
        )
    head_size, heads = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    return PolynomialTransformer(
        depth=depth,
        width=width,
        heads=heads,
        head_size=head_size,
        num_kv_heads=draw(st.sampled_from((1, heads))),
        latent=draw(st.none() | st.integers(1, width)),
        query_latent=draw(st.none() | st.integers(1, width)),
        is_causal=draw(st.booleans()),
        has_rotary=head_size == 2 and draw(st.booleans()),
        has_positions=draw(st.booleans()),
        has_residual=draw(st.booleans()),
        gated=draw(st.none() | st.integers(1, 2)) if depth == 1 else None,
        num_tokens=tokens,
        output_position=place,
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(network=networks(), data=st.data())
def test_no_rank_exceeds_the_bound(network: PolynomialNetwork, data: st.DataObject) -> None:
    order = network.num_positions
    left = data.draw(st.sets(st.integers(0, order - 1), min_size=1, max_size=order - 1))
    partition = Partition.of(sorted(left), order=order)
    upper, lower = network.upper_bound(partition), network.lower_bound(partition)
    assert upper is not None
    rank = measured(network, partition)
    assert upper.holds_for(rank)
    assert lower is None or rank == LARGEST or lower.holds_for(rank)


@settings(deadline=None, max_examples=25)
@given(network=networks(), data=st.data())
def test_no_part_exceeds_its_term(network: PolynomialNetwork, data: st.DataObject) -> None:
    order = network.num_positions
    left = data.draw(st.sets(st.integers(0, order - 1), min_size=1, max_size=order - 1))
    partition = Partition.of(sorted(left), order=order)
    terms = network.grade_upper_bounds(partition)
    if terms is None:
        return
    points = numpy.arange(60)
    parts = network.split(partition, seed=0, prime=PRIME).graded_values(points, points)
    for part, term in zip(parts, terms, strict=True):
        assert rank_modulo(part, PRIME) <= term


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_residual_or_positions_do_not_change_the_rank_of_one_head(depth: int, width: int) -> None:
    """Both bounds meet: the count of section 7 and the top degree of section 23."""
    ranks = {
        measured(transformer(depth=depth, width=width, num_tokens=2 * width, **options),
                 Partition.interleaved(2 * width))
        for options in ({}, {"has_residual": True}, {"has_positions": True},
                        {"has_residual": True, "has_positions": True})
    }  # fmt: skip
    sizes = AttentionSizes(depth, width)
    assert ranks == {sum(heads_terms(sizes))}


@settings(deadline=None, max_examples=12)
@given(data=st.data(), heads=st.integers(1, 2), seed=st.integers(0, 9))
def test_what_is_added_below_the_top_degree_never_lowers_the_rank(
    data: st.DataObject, heads: int, seed: int
) -> None:
    """At the same weights, whatever the mask and the gate."""
    options = {
        "heads": heads,
        "head_size": 1,
        "is_causal": data.draw(st.booleans()),
        "gated": data.draw(st.sampled_from((None, 1))),
        "depth": 1,
        "num_tokens": 4,
    }
    plain = transformer(**options)
    more = transformer(**options, has_residual=True, has_positions=data.draw(st.booleans()))
    weights = more.draw_weights(seed, PRIME)
    points, partition = numpy.arange(40), Partition.interleaved(4)
    own = {name: weight for name, weight in weights.items() if name != "positions"}
    low = plain.split(partition, seed=seed, prime=PRIME, weights=own)
    high = more.split(partition, seed=seed, prime=PRIME, weights=weights)
    assert rank_modulo(low.values(points, points), PRIME) <= rank_modulo(
        high.values(points, points), PRIME
    )


@settings(deadline=None, max_examples=30)
@given(
    depth=st.integers(1, 3),
    width=st.integers(1, 5),
    heads=st.integers(1, 4),
    head_size=st.integers(1, 5),
)
def test_own_keys_for_every_head_give_the_head_bound(
    depth: int, width: int, heads: int, head_size: int
) -> None:
    sizes = AttentionSizes(depth, width, heads=heads, head_size=head_size)
    assert shared_keys_terms(sizes, SharedKeys(heads)) == heads_terms(sizes)
    assert shared_keys_terms(sizes, SharedKeys(heads, width, width)) == heads_terms(sizes)


@pytest.mark.parametrize("is_causal", [False, True])
def test_special_weights_have_no_larger_rank(is_causal: bool) -> None:
    """Fewer groups, smaller latents; a latent as wide as the tokens changes nothing."""
    sizes: dict[str, Any] = {"width": 3, "heads": 4, "head_size": 1, "is_causal": is_causal}
    partition = Partition.interleaved(4)
    groups = [measured(transformer(**sizes, num_kv_heads=k), partition) for k in (1, 2, 4)]
    latents = [measured(transformer(**sizes, latent=c), partition) for c in (1, 2, 3)]
    asked = [measured(transformer(**sizes, query_latent=c), partition) for c in (1, 2, 3)]
    for ranks in (groups, latents, asked):
        assert ranks == sorted(ranks)
        assert ranks[-1] == groups[-1]


# width, heads, head size, groups, latent, rank of two layers
SHARED = [
    (4, 4, 1, 4, None, 85), (4, 2, 2, 1, None, 85), (4, 2, 2, 2, 2, 64), (4, 2, 2, 2, 3, 100),
    (4, 4, 1, 1, None, 8), (4, 2, 2, 2, 1, 8),
]  # fmt: skip


@pytest.mark.parametrize(("width", "heads", "size", "groups", "latent", "rank"), SHARED)
def test_shared_and_latent_keys_that_attain_their_bound(
    width: int, heads: int, size: int, groups: int, latent: int | None, rank: int
) -> None:
    network = transformer(
        width=width,
        heads=heads,
        head_size=size,
        num_kv_heads=groups,
        latent=latent,
        num_tokens=2 * width,
    )
    sizes = AttentionSizes(2, width, heads=heads, head_size=size)
    bound = shared_keys_upper_bound(sizes, SharedKeys(groups, latent))
    assert measured(network, Partition.interleaved(2 * width)) == rank == bound.value


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_one_form_makes_a_product_of_powers(depth: int) -> None:
    network = transformer(depth=depth, width=3, heads=3, num_kv_heads=1, num_tokens=6)
    expected = {1: 2, 2: 8, 3: 80}[depth]
    assert measured(network, Partition.interleaved(6)) == expected
    upper = network.upper_bound(Partition.interleaved(6))
    assert upper.value == expected


@pytest.mark.parametrize("kind", ["diagonal", "dense"])
@pytest.mark.parametrize(("width", "tokens"), [(2, 4), (3, 4), (2, 6)])
def test_two_layers_of_a_state_space_attain_the_bounds(kind: str, width: int, tokens: int) -> None:
    network = Recurrence(kind=kind, depth=2, width=width, num_tokens=tokens)
    for partition in (Partition.interleaved(tokens), Partition.left_right(tokens)):
        assert network.upper_bound(partition).value == measured(network, partition)


@pytest.mark.parametrize("kind", ["selective", "delta"])
@pytest.mark.parametrize("state", [1, 2, 3])
def test_one_layer_knows_of_the_past_what_its_state_holds(kind: str, state: int) -> None:
    network = Recurrence(kind=kind, depth=1, width=3, state=state, num_tokens=6)
    partition = Partition.left_right(6)
    assert network.upper_bound(partition).value == 1 + state == measured(network, partition)


@settings(deadline=None, max_examples=30)
@given(
    width=st.integers(1, 3),
    others=st.integers(0, 3),
    most=st.integers(0, 4),
    step=st.integers(1, 2),
    is_symmetric=st.booleans(),
)
def test_functions_of_a_side_are_counted_as_listed(
    width: int, others: int, most: int, step: int, is_symmetric: bool
) -> None:
    degrees, output, degree = range(0, most + 1, step), range(1, 4, 2), 5
    monomials = {
        e: [m for m in itertools.product(range(e + 1), repeat=width) if sum(m) == e]
        for e in range(max(most, 3) + 1)
    }
    listed = [0] * (degree + 1)
    choices = [m for e in degrees for m in monomials[e]]
    repeated = (
        list(itertools.combinations_with_replacement(choices, others))
        if is_symmetric
        else list(itertools.product(choices, repeat=others))
    )
    for rest in repeated:
        for own in (m for e in output for m in monomials[e]):
            total = sum(map(sum, rest)) + sum(own)
            if total <= degree:
                listed[total] += 1
    side = TokenSide(width, (degrees,) * others, output, is_symmetric)
    assert side.counts(degree) == listed


@settings(deadline=None, max_examples=30)
@given(
    first=st.integers(1, 4),
    second=st.integers(1, 3),
    with_state=st.integers(1, 2),
    without=st.integers(1, 3),
)
def test_monomials_of_states_are_fewer_than_all_up_to_the_largest_degrees(
    first: int, second: int, with_state: int, without: int
) -> None:
    states = StateDegrees((first, second), with_state, without)
    largest = max(with_state, without)
    counted = states.by_degree((1, 0))
    assert max(counted) == largest == states.num_factors
    assert states.total() == sum(counted.values())
    assert all((e, f) in states.multidegrees() for e, f in ((0, 0), (with_state, 1), (without, 0)))


def test_deep_networks_have_bounds_too() -> None:
    network = transformer(depth=12, width=8, is_causal=True, num_tokens=16)
    upper = network.upper_bound(Partition.left_right(16))
    assert upper.log3 > 100
    assert network.grade_upper_bounds(Partition.left_right(16)) is None
    deep = Recurrence(kind="delta", depth=6, width=8, num_tokens=16)
    assert deep.upper_bound(Partition.interleaved(16)).log3 > 100


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(BoundError, match="num_right_counts must be at least 3, got 2"):
        degree_upper_bound([1, 1, 1], [1, 1], is_homogeneous=True)
    with pytest.raises(BoundError, match="4 sites need 3 bonds, got 1"):
        state_upper_bound([StateDegrees((1,), 1, 3)], (2, 2, 2, 2), (0,))
