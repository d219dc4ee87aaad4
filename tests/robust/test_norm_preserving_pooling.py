import pytest
import torch

from rankscope.errors import LayerError
from rankscope.robust import NormPreservingPool


def test_it_is_the_sum_over_the_root_of_the_number() -> None:
    inputs = torch.arange(12.0, dtype=torch.float64).reshape(1, 1, 2, 6)
    sums = [0 + 1 + 2 + 6 + 7 + 8, 3 + 4 + 5 + 9 + 10 + 11]
    expected = torch.tensor(sums, dtype=torch.float64).reshape(1, 1, 1, 2) / 6**0.5
    torch.testing.assert_close(NormPreservingPool((2, 3))(inputs), expected)


def test_images_that_are_constant_on_blocks_keep_their_norms() -> None:
    small = torch.randn(2, 3, 2, 2, dtype=torch.float64)
    large = small.repeat_interleave(3, dim=2).repeat_interleave(3, dim=3)
    torch.testing.assert_close(NormPreservingPool(3)(large).norm(), large.norm())


def test_blocks_that_do_not_tile_are_refused() -> None:
    with pytest.raises(LayerError, match=r"blocks of \(2, 2\), got the shape \(1, 1, 4, 5\)"):
        NormPreservingPool(2)(torch.zeros(1, 1, 4, 5))
    with pytest.raises(LayerError, match=r"blocks of \(2, 2\), got the shape \(1, 1, 5, 4\)"):
        NormPreservingPool(2)(torch.zeros(1, 1, 5, 4))
    with pytest.raises(LayerError, match=r"got the shape \(4, 4\)"):
        NormPreservingPool(2)(torch.zeros(4, 4))
    with pytest.raises(LayerError, match=r"2 sizes of at least 1, got \(0, 0\)"):
        NormPreservingPool(0)


def test_what_a_reader_sees() -> None:
    assert repr(NormPreservingPool(2)) == "NormPreservingPool((2, 2))"
