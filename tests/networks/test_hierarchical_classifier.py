"""The hierarchical classifier."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import SizeError
from rankscope.networks import HierarchicalClassifier, PatchFeatures, binary_pooling
from rankscope.rank import Partition, Pooling


@pytest.mark.parametrize(("is_shared", "nodes"), [(False, [16, 8, 4, 2]), (True, [1, 1, 1, 1])])
def test_every_level_halves_the_nodes(is_shared: bool, nodes: list[int]) -> None:
    features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=3)
    classifier = HierarchicalClassifier(features, channels=4, num_classes=5, is_shared=is_shared)
    assert [len(maps) for maps in classifier.convolutions] == nodes


def test_bounds_of_the_published_theorems_are_reachable() -> None:
    features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=3)
    network = HierarchicalClassifier(features, channels=4, num_classes=5).score_network(0)
    partition = Partition.interleaved(16)
    assert network.lower_bound(partition).value == network.upper_bound(partition).value == 3**8


@settings(deadline=None, max_examples=30)
@given(num_tokens=st.integers(2, 70))
def test_any_number_of_patches_is_pooled_to_one_node_by_pairs(num_tokens: int) -> None:
    levels = binary_pooling(num_tokens)
    assert Pooling(levels).num_tokens == num_tokens
    assert all(len(window) <= 2 for windows in levels for window in windows)
    assert len(levels) == (num_tokens - 1).bit_length()


def test_no_channels_are_refused() -> None:
    features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=3)
    with pytest.raises(SizeError, match="channels must be at least 1, got 0"):
        HierarchicalClassifier(features, channels=0, num_classes=5)
