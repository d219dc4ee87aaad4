"""Sizes of networks."""

import pytest

from rankscope.errors import SizeError
from rankscope.rank import require_sizes


def test_the_first_size_that_is_too_small_is_named() -> None:
    require_sizes("Network", width=1, depth=1)
    require_sizes("Network", least=2, order=2)
    with pytest.raises(SizeError, match="Network: depth must be at least 1, got 0"):
        require_sizes("Network", width=1, depth=0, heads=-1)
    with pytest.raises(SizeError, match="Network: order must be at least 2, got 1"):
        require_sizes("Network", least=2, order=1)
