import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.errors import LayerError
from rankscope.robust import ParaunitaryFactors, factor_paraunitary


def columns(rows: int, count: int, generator: torch.Generator) -> torch.Tensor:
    square = torch.empty(rows, rows, dtype=torch.float64)
    return nn.init.orthogonal_(square, generator=generator)[:, :count]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 6).flatmap(
        lambda size: st.tuples(
            st.just(size), st.integers(1, size), st.lists(st.integers(0, size), max_size=5)
        )
    ),
    st.integers(0, 99),
)
def test_a_filter_of_factors_of_any_ranks_is_factored_again(
    sizes: tuple[int, int, list[int]], seed: int
) -> None:
    rows, width, ranks = sizes
    generator = torch.Generator().manual_seed(seed)
    frames = tuple(columns(rows, rank, generator) for rank in ranks)
    taps = ParaunitaryFactors(frames, columns(rows, width, generator)).to_taps()
    found = factor_paraunitary(taps)
    assert len(found.frames) == len(ranks)
    # Every step may drop a singular value below the tolerance of 1e-8.
    torch.testing.assert_close(found.to_taps(), taps, rtol=0, atol=1e-7)
    for frame in (*found.frames, found.last):
        identity = torch.eye(frame.shape[1], dtype=torch.float64)
        torch.testing.assert_close(frame.mT @ frame, identity, rtol=0, atol=1e-7)


def test_a_filter_that_does_not_preserve_norms_is_refused_with_how_far_it_is_off() -> None:
    taps = torch.eye(3, dtype=torch.float64)[None] * 1.1
    with pytest.raises(LayerError, match=r"off by 0\.21, over the tolerance of 1e-08"):
        factor_paraunitary(taps)


@pytest.mark.parametrize("shape", [(0, 2, 2), (2, 2, 3)])
def test_a_filter_of_no_taps_or_a_wide_one_is_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(LayerError, match=r"as many rows as columns are needed, got \("):
        factor_paraunitary(torch.zeros(shape))
