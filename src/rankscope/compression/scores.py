"""What an error is worth: the interface between the planner and whoever weighs its errors.

The planner adds up, over all sites, `multiplier * error**2`. With `Weights` the error is that of
the weight; a scoring that has seen data gives a `Weighing` for every site instead, and the error
becomes that of the site's outputs on those data.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

Batch = Tensor | tuple[object, ...] | Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Weighing:
    r"""How the error of one site is measured, and what it counts for.

    .. math:: \text{error} = \|D (W - W') L\| / \|D W L\|

    Args:
        factor: L, lower triangular and invertible, with L Lᵀ the second moments of the inputs:
            (in_size, in_size), or (groups, in_size, in_size) for a convolution in groups. Of a
            convolution, in_size counts channels. None for the identity.
        rows: the diagonal of D, positive: one number for each row of the weight. Of an embedding,
            the square roots of how often each row is looked up. None for ones.
        multiplier: what the squared error counts for among those of the other sites.
    """

    factor: Tensor | None = None
    rows: Tensor | None = None
    multiplier: float = 1.0


class Scoring(ABC):
    """What errors are scored on. Subclasses may look at data once, in `prepare`."""

    name: ClassVar[str]  # as a plan says it: "weights", "activations", "fisher"

    @abstractmethod
    def prepare(self, model: nn.Module) -> None:
        """Look at the model, once, before the first question; it must be left as it was."""

    @abstractmethod
    def weigh(self, site_name: str) -> Weighing | None:
        """How one site is weighed; None if no data reached it (then by its weight alone)."""


@dataclass(frozen=True)
class Weights(Scoring):
    """Errors of the weights themselves, all sites alike: needs no data."""

    name: ClassVar[str] = "weights"

    def prepare(self, model: nn.Module) -> None:
        """Nothing to look at."""

    def weigh(self, site_name: str) -> Weighing | None:
        """Every site as it is."""
        del site_name
        return Weighing()


def run(model: nn.Module, batch: Batch) -> object:
    """Call a model with a batch: a tensor, a tuple of positional or a mapping of named inputs."""
    if isinstance(batch, tuple):
        return model(*batch)
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(batch)
