"""Distances between discrete distributions, as losses for classification use them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from scipy import special

from rankscope.constructions.dense import Reals
from rankscope.errors import ConstructionError

# float64 rounding of many terms passes; float32 probabilities must be normalized again first.
SUM_TOLERANCE = 1e-9
Distribution = Reals | Sequence[float]


@dataclass(frozen=True)
class TotalVariation:
    """The greatest difference of probabilities, and an event that has it."""

    value: float
    event: tuple[int, ...]


def lp_distance(first: Distribution, second: Distribution, *, power: float) -> float:
    r"""The metric of L^p; `power` may be infinite.

    .. math:: d_{L^p}(P, Q) = \Bigl(\sum_i |P(i) - Q(i)|^p\Bigr)^{1/p}

    Example:
        >>> lp_distance([0.5, 0.5], [1.0, 0.0], power=1.0)
        1.0

    Raises:
        ConstructionError: if an argument is no distribution, the sizes differ, or power < 1.
    """
    left, right = _pair("lp_distance", first, second)
    if not power >= 1:
        raise ConstructionError(
            f"lp_distance needs a power of at least 1, got {power}: below 1 the triangle "
            "inequality fails."
        )
    return _lp(left - right, power)


def _lp(differences: Reals, power: float) -> float:
    sizes = numpy.abs(differences)
    largest = float(sizes.max())
    if largest == 0 or math.isinf(power):
        return largest
    # Scaled, so that no power underflows.
    return largest * math.pow(float(((sizes / largest) ** power).sum()), 1 / power)


def total_variation(first: Distribution, second: Distribution) -> TotalVariation:
    r"""The metric of total variation, and the event where the two differ most.

    .. math:: \sup_A |P(A) - Q(A)| = \tfrac12 d_{L^1}(P, Q), \qquad A = \{i : P(i) \ge Q(i)\}

    Example:
        >>> total_variation([0.5, 0.25, 0.25], [0.25, 0.25, 0.5])
        TotalVariation(value=0.25, event=(0, 1))

    Raises:
        ConstructionError: if an argument is no distribution, or the sizes differ.
    """
    left, right = _pair("total_variation", first, second)
    event = numpy.flatnonzero(left >= right)
    return TotalVariation(float(numpy.abs(left - right).sum()) / 2, tuple(event.tolist()))


def kullback_leibler(first: Distribution, second: Distribution) -> float:
    r"""The Kullback-Leibler divergence, in nats (divide by log 2 for bits); not a metric.

    .. math:: D_{KL}(P \| Q) = \sum_i p_i \log(p_i / q_i), \qquad 0 \log(0 / q) = 0

    Infinite exactly if some p_i > 0 where q_i = 0.

    Example:
        >>> kullback_leibler([1.0, 0.0], [0.5, 0.5]) == math.log(2)
        True
        >>> kullback_leibler([0.5, 0.5], [1.0, 0.0])
        inf

    Raises:
        ConstructionError: if an argument is no distribution, or the sizes differ.
    """
    left, right = _pair("kullback_leibler", first, second)
    # The sum is never negative by Jensen's inequality; its rounding may be.
    return max(0.0, float(special.rel_entr(left, right).sum()))


def cross_entropy(first: Distribution, second: Distribution) -> float:
    r"""The cross-entropy, in nats; not a metric.

    .. math:: CE(P, Q) = -\sum_i p_i \log q_i = H(P) + D_{KL}(P \| Q)

    Example:
        >>> cross_entropy([0.0, 1.0], [0.5, 0.5]) == math.log(2)
        True

    Raises:
        ConstructionError: if an argument is no distribution, or the sizes differ.
    """
    left, right = _pair("cross_entropy", first, second)
    used = left > 0
    if (right[used] == 0).any():
        return math.inf
    return float(-(left[used] * numpy.log(right[used])).sum()) + 0.0


def entropy(distribution: Distribution) -> float:
    """The entropy H(P) = CE(P, P), in nats.

    Example:
        >>> entropy([1.0, 0.0])
        0.0

    Raises:
        ConstructionError: if the argument is no distribution.
    """
    return float(special.entr(_require("entropy", distribution)).sum())


@dataclass(frozen=True)
class DistributionDistances:
    """All of them for one pair, P first; entropies and divergences in nats."""

    l1: float
    l2: float
    l_infinity: float
    total_variation: TotalVariation
    kullback_leibler: float
    kullback_leibler_reversed: float
    cross_entropy: float
    entropy: float

    @property
    def pinsker(self) -> float:
        """What the divergence is at least, both ways: twice the squared total variation."""
        return 2 * self.total_variation.value**2


def compare_distributions(first: Distribution, second: Distribution) -> DistributionDistances:
    """Every distance of this module between two distributions.

    Raises:
        ConstructionError: if an argument is no distribution, or the sizes differ.

    Reference:
        Diehl (2023), Section 1.4; Pinsker's inequality is not in the lecture.
    """
    left, right = _pair("compare_distributions", first, second)
    return DistributionDistances(
        _lp(left - right, 1.0),
        _lp(left - right, 2.0),
        _lp(left - right, math.inf),
        total_variation(left, right),
        kullback_leibler(left, right),
        kullback_leibler(right, left),
        cross_entropy(left, right),
        entropy(left),
    )


def _pair(who: str, first: Distribution, second: Distribution) -> tuple[Reals, Reals]:
    left, right = _require(who, first), _require(who, second)
    if len(left) != len(right):
        raise ConstructionError(
            f"{who} compares distributions on the same outcomes, got {len(left)} and {len(right)}."
        )
    return left, right


def _require(who: str, values: Distribution) -> Reals:
    found = numpy.asarray(values, dtype=float)
    if found.ndim != 1 or not len(found):
        raise ConstructionError(
            f"{who} needs a list of probabilities, got an array of shape {found.shape}."
        )
    # Written so that a nan is refused as well.
    bad = numpy.flatnonzero(~(found >= 0))
    if len(bad):
        raise ConstructionError(
            f"{who}: probabilities are at least 0, got {found[bad[0]]} at position {bad[0]}."
        )
    total = float(found.sum())
    if not abs(total - 1) <= SUM_TOLERANCE:
        raise ConstructionError(
            f"{who}: probabilities add up to 1, got {total!r}; divide by it first."
        )
    return found
