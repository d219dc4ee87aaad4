"""Fully connected networks whose layers are products: bounds by degree."""

import math

from rankscope.bounds.meeting import FreeCount, meeting_sum
from rankscope.bounds.sizes import require_at_least, require_depth
from rankscope.errors import BoundError
from rankscope.theorem import Magnitude, Status, Theorem, UpperBound

# Depth one takes a third number into the minimum, so its sum is walked term by term.
MAX_DEGREE = 10_000

FULLY_CONNECTED = Theorem(
    "Rankscope, degree count",
    "docs/proofs.md, section 16",
    None,
    (
        "layers (W_1 x) * ... * (W_degree x) without activation",
        "the output is one coordinate of the last layer",
        "all weights",
    ),
    Status.PROVED_HERE,
)


def fully_connected_upper_bound(
    *, num_inputs: int, num_left: int, degree: int, depth: int
) -> UpperBound:
    r"""Largest separation rank of a network of product layers, its inputs split in two.

    .. math:: \operatorname{sep} \le \sum_{s=0}^{T}
              \min\left(\left(\!\!\binom{a}{s}\!\!\right),
              \left(\!\!\binom{n - a}{T - s}\!\!\right)\right), \qquad T = \delta^p

    with n = `num_inputs`, a = `num_left`, δ = `degree`, p = `depth`. At depth one each of the δ
    factors takes a side, so a term is at most C(δ, s) as well. Layers that are chains of Gram
    matrices (δ odd) are covered by `counting_upper_bound`.

    Example:
        >>> fully_connected_upper_bound(num_inputs=4, num_left=2, degree=3, depth=2).value
        30

    Raises:
        BoundError: if a side is empty, or a size is too small or too large.

    Reference:
        ours (proved), after Navon (2021), Comment 3.1; docs/proofs.md, section 16.
    """
    who = "fully_connected_upper_bound"
    require_at_least(who, 1, num_left=num_left, num_right=num_inputs - num_left, degree=degree)
    require_depth(who, depth)
    left, right = FreeCount(num_left), FreeCount(num_inputs - num_left)
    total = int(degree**depth)
    if depth > 1:
        return UpperBound(meeting_sum(left, right, total), FULLY_CONNECTED)
    if degree > MAX_DEGREE:
        raise BoundError(
            f"{who}: at depth 1 the degree must be at most {MAX_DEGREE:,}, got {degree:,}."
        )
    number = sum(
        min(left.value(part), right.value(degree - part), math.comb(degree, part))
        for part in range(degree + 1)
    )
    return UpperBound(Magnitude.of(number), FULLY_CONNECTED)
