import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.errors import LayerError
from rankscope.robust import GroupSort, MaxMin


@settings(deadline=None)
@given(half=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_groups_of_two_are_max_min(half: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(-2, 3, (3, 2 * half, 2), generator=generator).double()
    torch.testing.assert_close(GroupSort(2)(inputs), MaxMin()(inputs))


@settings(deadline=None)
@given(half=st.integers(1, 5), scale=st.integers(-30, 30), seed=st.integers(0, 2**32))
def test_outputs_and_gradients_are_those_that_came_in_to_the_bit(
    half: int, scale: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs, upstream = torch.randn(2, 3, 2 * half, 4, generator=generator).unbind()
    inputs = (inputs * 2.0**scale).requires_grad_()
    outputs = MaxMin()(inputs)
    (gradients,) = torch.autograd.grad(outputs, inputs, upstream)
    for after, before in ((outputs, inputs), (gradients, upstream)):
        for part in range(2):  # each pair, in one order or the other
            pairs = [t.unflatten(1, (2, -1)).sort(dim=1).values[:, part] for t in (after, before)]
            assert torch.equal(*pairs)


@settings(deadline=None)
@given(size=st.integers(1, 4), groups=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_the_members_of_a_group_stand_a_number_of_groups_apart(
    size: int, groups: int, seed: int
) -> None:
    inputs = torch.randn(2, size * groups, generator=torch.Generator().manual_seed(seed))
    outputs = GroupSort(size)(inputs)
    for group in range(groups):
        expected = inputs[:, group::groups].sort(dim=1, descending=True).values
        torch.testing.assert_close(outputs[:, group::groups], expected)


def test_channels_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(LayerError, match=r"must be even, got inputs of shape \(2, 5\)"):
        MaxMin()(torch.zeros(2, 5))
    with pytest.raises(LayerError, match=r"MaxMin: .* got inputs of shape \(4,\)"):
        MaxMin()(torch.zeros(4))
    with pytest.raises(LayerError, match=r"groups of 3 must divide .* shape \(2, 4, 1\)"):
        GroupSort(3)(torch.zeros(2, 4, 1))
    with pytest.raises(LayerError, match="at least 1 channel, got 0"):
        GroupSort(0)


def test_what_a_reader_sees() -> None:
    assert repr(GroupSort(4)) == "GroupSort(4)"
