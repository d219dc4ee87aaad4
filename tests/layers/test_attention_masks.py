from typing import TypedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.errors import LayerError
from rankscope.layers.projected_attention import merged_mask

BATCH, NUM_MAPS, NUM_QUERIES, NUM_KEYS = SCORES = (2, 6, 3, 5)


class Sizes(TypedDict):
    query: Tensor
    key: Tensor
    num_maps: int


def _sizes(dtype: torch.dtype) -> Sizes:
    query = torch.zeros(BATCH, NUM_QUERIES, 4, dtype=dtype)
    return {"query": query, "key": torch.zeros(BATCH, NUM_KEYS, 4), "num_maps": NUM_MAPS}


def test_no_masks_add_nothing() -> None:
    assert merged_mask(None, None, **_sizes(torch.float64)) is None


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**16), groups=st.sampled_from([1, 2, 3, 6]))
def test_both_masks_meet_entry_by_entry(seed: int, groups: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    padding = torch.randint(2, (BATCH, NUM_KEYS), generator=draw).bool()
    extra = torch.randn(BATCH * groups, NUM_QUERIES, NUM_KEYS, generator=draw, dtype=torch.float64)
    mask = merged_mask(padding, extra, **_sizes(torch.float64))
    assert mask is not None
    whole = mask.expand(SCORES)
    for sample in range(BATCH):
        for place in range(NUM_MAPS):
            # Map `place` belongs to the group that holds it, groups being of neighbours.
            wanted = extra[sample * groups + place * groups // NUM_MAPS].clone()
            wanted[:, padding[sample]] = float("-inf")
            assert torch.equal(whole[sample, place], wanted)


def test_a_boolean_matrix_is_shared_by_samples_and_maps() -> None:
    causal = torch.ones(3, 5).triu(1).bool()
    mask = merged_mask(None, causal, **_sizes(torch.float32))
    assert mask is not None
    assert mask.shape == (1, 1, 3, 5)
    assert torch.equal(mask[0, 0] == float("-inf"), causal)
    assert torch.equal(mask[0, 0][~causal], torch.zeros(int((~causal).sum())))


@pytest.mark.parametrize("shape", [(5,), (5, 3), (3, 3, 5), (2 * 4, 3, 5), (0, 3, 5), (4, 5, 3)])
def test_a_mask_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LayerError, match=r"shape \(3, 5\), or 2 times a divisor of 6 .* got \("):
        merged_mask(None, torch.zeros(shape), **_sizes(torch.float32))


def test_a_padding_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(LayerError, match=r"must have shape \(2, 5\).* got \(5, 2\)"):
        merged_mask(torch.zeros(5, 2), None, **_sizes(torch.float32))


def test_a_mask_of_integers_is_refused() -> None:
    with pytest.raises(LayerError, match=r"boolean .* or floating-point .* got torch.int64"):
        merged_mask(torch.zeros(2, 5).long(), None, **_sizes(torch.float32))
