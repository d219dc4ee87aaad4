import pytest

from rankscope.errors import TrainingError
from rankscope.training.recipe import PiecewiseLinear, Spent


@pytest.mark.parametrize(
    ("share", "factor"),
    [(0.0, 0.0), (0.1, 0.25), (0.4, 1.0), (0.6, 0.525), (0.8, 0.05), (0.9, 0.025), (1.0, 0.0)],
)
def test_the_published_schedule_rises_falls_and_ends_at_nothing(
    share: float, factor: float
) -> None:
    at = Spent(epoch=3, steps=share, seconds=0.9)
    assert PiecewiseLinear().factor(at) == pytest.approx(factor)


def test_a_share_past_the_end_is_the_end() -> None:
    schedule = PiecewiseLinear(((0.0, 1.0), (1.0, 0.5)))
    assert schedule.factor(Spent(epoch=9, steps=1.1, seconds=0.0)) == 0.5


@pytest.mark.parametrize("shares", [(), (0.0, 0.5), (0.1, 1.0), (0.0, 0.5, 0.5, 1.0)])
def test_shares_that_do_not_rise_from_0_to_1_are_refused(shares: tuple[float, ...]) -> None:
    with pytest.raises(TrainingError, match=r"must rise from 0 to 1, got \["):
        PiecewiseLinear(tuple((share, 1.0) for share in shares))
