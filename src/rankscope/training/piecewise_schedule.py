"""A learning rate that goes up and down in straight lines."""

from dataclasses import dataclass
from itertools import pairwise

from rankscope.errors import TrainingError
from rankscope.training.recipe import Schedule, Spent

# Of the published Lipschitz networks: up over two fifths, down to a twentieth, then to nothing.
RISE_AND_FALL = ((0.0, 0.0), (0.4, 1.0), (0.8, 0.05), (1.0, 0.0))


@dataclass(frozen=True)
class PiecewiseLinear(Schedule):
    """Straight lines between given points.

    Args:
        points: (share of the run, factor), with shares that rise from 0 to 1.

    Example:
        >>> PiecewiseLinear().factor(Spent(epoch=0, steps=0.2, seconds=0.0))
        0.5

    Raises:
        TrainingError: if the shares do not rise from 0 to 1.
    """

    points: tuple[tuple[float, float], ...] = RISE_AND_FALL

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        rises = all(before < after for before, after in pairwise(shares))
        if not shares or shares[0] != 0 or shares[-1] != 1 or not rises:
            raise TrainingError(
                f"PiecewiseLinear: the shares of a run must rise from 0 to 1, got {shares}."
            )

    def factor(self, spent: Spent) -> float:
        """The factor of the step that comes next."""
        for (before, low), (after, high) in pairwise(self.points):
            if spent.steps <= after:
                return low + (high - low) * (spent.steps - before) / (after - before)
        return self.points[-1][1]
