"""Polynomials of bounded degree, whatever network computes them: bounds by degree alone."""

from rankscope.bounds.meeting import FreeCount, meeting_sum
from rankscope.bounds.sizes import require_at_least
from rankscope.theorem import Status, Theorem, UpperBound

TOTAL_DEGREE = Theorem(
    "Rankscope, total degree",
    "docs/proofs.md, section 21",
    None,
    ("the output is a polynomial of at most this degree in all inputs together", "all weights"),
    Status.PROVED_HERE,
)


def total_degree_upper_bound(*, num_left: int, num_right: int, degree: int) -> UpperBound:
    r"""Largest separation rank of any polynomial of at most this degree, homogeneous or not.

    .. math:: \operatorname{sep} \le \sum_{s=0}^{T} \min\left(\left(\!\!\binom{a}{s}\!\!\right),
              \left(\!\!\binom{b}{T - s}\!\!\right)\right)

    with T = `degree` and a, b scalar inputs on the two sides. Biases, residuals and layers of mixed
    degree do not raise it: it is the bound of the homogeneous case.

    Example:
        >>> total_degree_upper_bound(num_left=2, num_right=2, degree=9).value
        30

    Raises:
        BoundError: if a side is empty, or the degree is negative.

    Reference:
        ours (proved); docs/proofs.md, section 21.
    """
    who = "total_degree_upper_bound"
    require_at_least(who, 1, num_left=num_left, num_right=num_right)
    require_at_least(who, 0, degree=degree)
    return UpperBound(meeting_sum(FreeCount(num_left), FreeCount(num_right), degree), TOTAL_DEGREE)
