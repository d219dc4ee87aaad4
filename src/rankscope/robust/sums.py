"""Sums of products that are known: what rounding can do to all sums of a layer, in any order.

Partial sums are at most those of the largest terms of one sign, and an addition is off by half of
the distance of floats near its result, which is between half of u times the result and all of it.
That is some three quarters of the bound by squares of products (`rounding.ProductSquares`), which
is made much faster. docs/proofs.md, section 36, has the proof.
"""

import math

import torch
from torch import Tensor

from rankscope.robust.rounding import FLOAT64, Arithmetic

MOST_TERMS = 2**24  # of a layer, 128 MiB; layers with more keep the bound by squares
# Drifts that are looked at, as powers of two of the largest: the rows share it, so that few matter.
_DRIFTS = (-7.0, -6.5, -6.0, -5.5, -5.0, -4.5, -4.0, -3.5, -3.0, -2.0, -1.0, 0.0)
_PRICES = tuple(2.0 ** (power / 2) for power in range(-8, 9))
_UP = 1 + 2**-30
_EXPONENT = 0x7FF << 52  # the bits of a float64 that are its exponent


def error_of_sums(terms: Tensor, drift: float, arithmetic: Arithmetic, count: int) -> float:
    r"""An upper bound on the length of the vector of errors, one for each row of terms.

    Args:
        terms: (sums, terms), float64, in the middle of a ball.
        drift: choose some terms of each row, and let their sums move within the ball: the vector
            of these changes is not longer than this.
        arithmetic: in which terms are multiplied and added; what is flushed to zero is not counted.
        count: roundings that one term can meet, at least the number of terms.

    Example:
        >>> terms = torch.tensor([[3.0, -2.0, 1.0]], dtype=torch.float64)
        >>> float32 = Arithmetic.of(torch.float32)
        >>> error_of_sums(terms, 0.0, float32, 3) < 25 * float32.unit  # 18 for sums, 6 for products
        True
    """
    gamma = arithmetic.gamma(count)
    if not (math.isfinite(gamma) and math.isfinite(drift) and bool(torch.isfinite(terms).all())):
        return math.inf
    partial = _PartialSums(terms, gamma + FLOAT64.gamma(2 * count + 64))
    drift = max(drift, FLOAT64.smallest**0.25)
    steps = [drift * 2**power for power in _DRIFTS]
    errors = torch.stack([partial.error(step, arithmetic.unit) for step in steps]).square()
    # A row that drifts by more than one step costs the square of that step of what all rows share.
    # For any price, what the rows gain above it and the price of all is a bound.
    costs = torch.tensor([0.0, *steps[:-1]], dtype=torch.float64).square()[:, None]
    usual = float(errors[0].sum()) / drift**2
    bounds = (
        price * drift**2 + float((errors - price * costs).amax(dim=0).sum())
        for price in (usual * each for each in _PRICES)
    )
    return math.sqrt(min(bounds)) * _UP


class _PartialSums:
    """Bounds on the partial sums of rows of terms, by the number of terms.

    Args:
        terms: (sums, terms).
        gamma: share of the sum of absolute values by which computed partial sums are off.
    """

    def __init__(self, terms: Tensor, gamma: float) -> None:
        half = (terms.shape[1] + 1) // 2
        above, below = (
            part.clamp(min=0).sort(dim=1, descending=True).values.cumsum(dim=1)[:, :half]
            for part in (terms, -terms)
        )
        total = terms.sum(dim=1, keepdim=True)
        self._gamma = gamma
        self._sizes = terms.abs().sum(dim=1)
        self._total = total.abs()
        self._few = torch.maximum(above, below)
        # Of all terms but a few: the total without these.
        self._many = torch.maximum(self._few, torch.maximum(total + below, above - total))

    def error(self, drift: float, unit: float) -> Tensor:
        """Bounds on the errors of the sums, if each of their partial sums drifts by so much."""
        sizes = self._sizes + 2 * drift
        room = (drift + self._gamma * sizes)[:, None]
        few, many, total = (
            spacing((sums + room).mul_(_UP)) for sums in (self._few, self._many, self._total)
        )
        sums = few[:, 1:].sum(dim=1) + many.sum(dim=1) + many[:, -1] + total[:, 0]
        return unit * (sums + 1.01 * sizes) * _UP


def spacing(sizes: Tensor) -> Tensor:
    """The largest power of two that is not above, exactly; at least the smallest normal number.

    Example:
        >>> spacing(torch.tensor([1.0, 3.9, 0.3], dtype=torch.float64))
        tensor([1.0000, 2.0000, 0.2500], dtype=torch.float64)
    """
    exponents = sizes.clamp(min=FLOAT64.smallest).view(torch.int64).bitwise_and_(_EXPONENT)
    return exponents.view(torch.float64)
