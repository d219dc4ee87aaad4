import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.constructions.blocks import concentration_bound, softmax, softmax_properties
from rankscope.errors import ConstructionError

scores = st.lists(st.floats(-20.0, 20.0), min_size=1, max_size=8, unique=True)


@settings(deadline=None)
@given(numbers=scores, shift=st.floats(-100.0, 100.0), sharpness=st.floats(0.1, 50.0))
def test_the_four_properties(numbers: list[float], shift: float, sharpness: float) -> None:
    vector = torch.tensor(numbers, dtype=torch.float64)
    found = softmax_properties(vector, shift=shift, sharpness=sharpness)
    assert 0 < found.smallest <= found.largest <= 1
    assert found.sum_error < 1e-14
    # Adding the shift rounds scores to about 1e-14, and weights move by no more than scores do.
    assert found.shift_error < 1e-12
    assert found.distance <= found.bound + 1e-14


@settings(deadline=None)
@given(numbers=scores)
def test_softmax_is_torchs(numbers: list[float]) -> None:
    vector = torch.tensor(numbers, dtype=torch.float64)
    torch.testing.assert_close(softmax(vector), torch.softmax(vector, dim=0))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_is_along_one_axis(axis: int) -> None:
    values = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(softmax(values, axis=axis), torch.softmax(values, dim=axis))


def test_the_distance_to_the_maximum_falls_with_the_sharpness() -> None:
    vector = torch.tensor([1.0, 3.0, 2.0])
    distances = [softmax_properties(vector, sharpness=sharp).distance for sharp in (1.0, 5.0, 25.0)]
    assert distances[0] > 10 * distances[1] > 100 * distances[2]


def test_one_score_has_all_the_weight() -> None:
    assert softmax_properties(torch.tensor([5.0])).largest == 1.0
    assert concentration_bound(torch.tensor([5.0]), sharpness=1.0) == 0.0


def test_two_greatest_scores_are_refused() -> None:
    with pytest.raises(ConstructionError, match="got 3 twice"):
        softmax_properties(torch.tensor([3.0, 1.0, 3.0]))


@pytest.mark.parametrize("shape", [(2, 2), (0,)])
def test_what_is_no_vector_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConstructionError, match=rf"got shape \({shape[0]}"):
        softmax_properties(torch.zeros(shape))
