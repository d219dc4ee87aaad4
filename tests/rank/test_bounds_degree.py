"""Product layers: the bound by degree."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import BoundError
from rankscope.rank import (
    Partition,
    ProductNetwork,
    fully_connected_lower_bound,
    fully_connected_upper_bound,
    measure_rank,
    multiset,
)


def bound(inputs: int, left: int, degree: int, depth: int) -> int | None:
    return fully_connected_upper_bound(
        num_inputs=inputs, num_left=left, degree=degree, depth=depth
    ).value


@pytest.mark.parametrize(("inputs", "degree", "depth", "value"), [
    (2, 3, 3, 28), (4, 2, 1, 4), (4, 3, 1, 6), (4, 2, 2, 9), (4, 3, 2, 30), (6, 2, 1, 4),
    (6, 3, 1, 8), (8, 3, 1, 8),
])  # fmt: skip
def test_balanced_blocks_have_the_reference_values(
    inputs: int, degree: int, depth: int, value: int
) -> None:
    assert bound(inputs, inputs // 2, degree, depth) == value


@settings(deadline=None)
@given(left=st.integers(1, 5), right=st.integers(1, 5), degree=st.integers(2, 4), depth=st.just(2))
def test_the_bound_is_the_sum_of_its_definition_and_symmetric(
    left: int, right: int, degree: int, depth: int
) -> None:
    total = degree**depth
    terms = [min(multiset(left, s), multiset(right, total - s)) for s in range(total + 1)]
    assert bound(left + right, left, degree, depth) == sum(terms)
    assert bound(left + right, right, degree, depth) == sum(terms)


@settings(deadline=None)
@given(half=st.integers(1, 8), degree=st.integers(2, 5), depth=st.integers(2, 6))
def test_balanced_halves_have_closed_forms(half: int, degree: int, depth: int) -> None:
    total = degree**depth
    if total % 2:
        expected = 2 * math.comb(half + (total - 1) // 2, half)
    else:
        expected = math.comb(half + total // 2, half) + math.comb(half + total // 2 - 1, half)
    assert bound(2 * half, half, degree, depth) == expected


def test_blocks_out_of_range_are_refused() -> None:
    with pytest.raises(BoundError, match="num_right must be at least 1, got 0"):
        bound(4, 4, 3, 2)
    with pytest.raises(BoundError, match="degree must be at most 10,000, got 10,001"):
        bound(4, 2, 10_001, 1)


@settings(deadline=None, max_examples=12)
@given(
    left=st.integers(1, 3),
    right=st.integers(1, 3),
    shape=st.sampled_from([(2, 2), (2, 3), (3, 2)]),
    width=st.integers(1, 4),
)
def test_random_product_networks_reach_the_lower_bound(
    left: int, right: int, shape: tuple[int, int], width: int
) -> None:
    degree, depth = shape
    network = ProductNetwork(num_inputs=left + right, degree=degree, depth=depth, width=width)
    partition = Partition.of(range(left), order=left + right)
    lower = network.lower_bound(partition)
    assert lower is not None
    assert lower.value == multiset(min(width, left + 1, right + 1), degree ** (depth - 1))
    assert measure_rank(network, partition).lower >= lower.value


@pytest.mark.parametrize(("degree", "depth", "kinds"), [(2, 2, 3), (2, 3, 3), (3, 2, 4)])
def test_the_weights_of_the_proof_have_just_this_rank(degree: int, depth: int, kinds: int) -> None:
    half = kinds - 1
    network = ProductNetwork(num_inputs=2 * half, degree=degree, depth=depth, width=kinds)
    weights = {name: torch.zeros_like(w) for name, w in network.named_parameters()}
    weights["layers.0"][:, 0, 0] = 1  # the first input to the power of the degree
    weights["layers.0"][:, 1, half] = 1
    for unit in range(2, kinds):
        weights["layers.0"][0, unit, unit - 1] = 1
        weights["layers.0"][1:, unit, half + unit - 1] = 1
    weights["layers.1"][:, 0, :] = 1
    for layer in range(2, depth):
        weights[f"layers.{layer}"][:, 0, 0] = 1
    partition = Partition.of(range(half), order=2 * half)
    measured = measure_rank(network, partition, weights=weights)
    assert measured.lower == multiset(kinds, degree ** (depth - 1))


def test_one_layer_and_linear_layers_have_no_lower_bound() -> None:
    partition = Partition.interleaved(4)
    assert ProductNetwork(num_inputs=4, degree=3, depth=1).lower_bound(partition) is None
    assert ProductNetwork(num_inputs=4, degree=1, depth=3).lower_bound(partition) is None
    with pytest.raises(BoundError, match="depth"):
        fully_connected_lower_bound(num_inputs=4, num_left=2, degree=2, depth=1, width=4)
