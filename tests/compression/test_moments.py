"""Second moments by their definition, and what their factor promises."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.compression import SecondMoments
from rankscope.errors import CompressionError


@settings(deadline=None)
@given(
    size=st.integers(1, 6),
    groups=st.integers(1, 3),
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
)
def test_sums_over_batches_are_the_moments_of_all(
    size: int, groups: int, counts: list[int], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    batches = [torch.randn(groups, count, size, generator=generator) for count in counts]
    moments = SecondMoments(size, groups)
    for batch in batches:
        moments.add(batch)
    vectors = torch.cat(batches, dim=1).double()
    wanted = torch.einsum("gni,gnj->gij", vectors, vectors) / vectors.shape[1]
    torch.testing.assert_close(moments.mean(), wanted)

    factor = moments.factor(1e-3, who="it")
    assert factor is not None
    scale = wanted.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None]
    torch.testing.assert_close(factor @ factor.mT, wanted + 1e-3 * scale * torch.eye(size))
    assert torch.equal(factor, factor.tril())
    # Invertible although there may be fewer vectors than directions.
    assert bool((factor.diagonal(dim1=1, dim2=2) > 0).all())


def test_float32_inputs_are_summed_in_float64() -> None:
    moments = SecondMoments(1)
    moments.add(torch.tensor([[[4096.0]]]))
    moments.add(torch.ones(1, 1, 1))  # float32 would lose it: 2^24 + 1
    assert moments.mean().item() == (2**24 + 1) / 2


def test_nothing_seen_gives_no_factor() -> None:
    assert SecondMoments(2).factor(1e-3, who="it") is None
    moments = SecondMoments(2, groups=2)
    moments.add(torch.stack([torch.ones(3, 2), torch.zeros(3, 2)]))
    assert moments.factor(1e-3, who="it") is None


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_inputs_that_are_not_finite_are_refused(bad: float) -> None:
    moments = SecondMoments(2)
    moments.add(torch.tensor([[[1.0, bad], [0.0, 0.0]]]))
    with pytest.raises(CompressionError, match="the 2 inputs of fc1 hold NaN or infinite"):
        moments.factor(1e-3, who="fc1")
