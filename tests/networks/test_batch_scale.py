"""The normalization: what it divides by in training and at inference."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.networks import BatchScale


@settings(deadline=None)
@given(seed=st.integers(0, 99), position=st.sampled_from([1, 2]))
def test_every_feature_of_a_batch_gets_mean_square_one(seed: int, position: int) -> None:
    inputs = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(seed)).double()
    found = BatchScale(inputs.shape[position], position=position).double()(inputs)
    squares = found.square().movedim(position, -1).flatten(0, -2).mean(dim=0)
    torch.testing.assert_close(squares, torch.ones_like(squares))


def test_at_inference_the_division_is_by_fixed_numbers() -> None:
    normalize = BatchScale(2)
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(4, 2, generator=generator) * scale for scale in (1, 2, 3)]
    for batch in batches:
        normalize(batch)
    # The first ten batches count alike.
    mean = torch.stack([batch.square().mean(dim=0) for batch in batches]).mean(dim=0)
    torch.testing.assert_close(normalize.scales(), mean.sqrt())
    normalize.eval()
    torch.testing.assert_close(normalize(batches[0]), batches[0] / normalize.scales())
    torch.testing.assert_close(normalize.scales(), mean.sqrt())


def test_a_feature_that_is_always_zero_stays_zero() -> None:
    assert BatchScale(2)(torch.zeros(3, 2)).tolist() == [[0.0, 0.0]] * 3
