"""Shallow networks."""

import pytest

from rankscope.errors import BoundError
from rankscope.rank import shallow_lower_bound, shallow_upper_bound


def test_shallow_networks_are_capped_by_channels_or_templates() -> None:
    for channels, value in ((5, 5), (100, 9)):
        bound = shallow_upper_bound(num_channels=channels, num_templates=3, num_left=2, num_right=4)
        assert bound.value == value
    with pytest.raises(BoundError, match="num_channels must be at least 1, got 0"):
        shallow_upper_bound(num_channels=0, num_templates=3, num_left=2, num_right=4)


def test_almost_all_shallow_networks_attain_their_bound() -> None:
    for channels in (5, 100):
        sizes = {"num_channels": channels, "num_templates": 3, "num_left": 2, "num_right": 4}
        assert shallow_lower_bound(**sizes).value == shallow_upper_bound(**sizes).value
    with pytest.raises(BoundError, match="shallow_lower_bound: num_right must be at least 1, got"):
        shallow_lower_bound(num_channels=3, num_templates=3, num_left=2, num_right=0)
