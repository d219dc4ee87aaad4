"""The shallow classifier."""

import pytest

from rankscope.errors import SizeError
from rankscope.networks import PatchFeatures, ShallowClassifier
from rankscope.rank import Partition


def test_no_separation_rank_exceeds_the_number_of_channels() -> None:
    features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=3)
    network = ShallowClassifier(features, channels=7, num_classes=5).score_network(4)
    assert network.upper_bound(Partition.interleaved(16)).value == 7


def test_no_channels_are_refused() -> None:
    features = PatchFeatures(image=(1, 8, 8), patch=2, num_features=3)
    with pytest.raises(SizeError, match="channels must be at least 1, got 0"):
        ShallowClassifier(features, channels=0, num_classes=5)
