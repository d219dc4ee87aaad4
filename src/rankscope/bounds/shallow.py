"""The bound on shallow (CP) networks."""

from rankscope.bounds.sizes import require_at_least
from rankscope.theorem import Magnitude, Theorem, UpperBound

SHALLOW = Theorem(
    "Cohen & Shashua (2017)",
    "shallow network",
    "1605.06743",
    ("one hidden layer", "global product pooling", "all weights; attained by almost all"),
)


def shallow_upper_bound(
    *, num_channels: int, num_templates: int, num_left: int, num_right: int
) -> UpperBound:
    r"""Largest separation rank of a shallow network: a sum of Z products.

    .. math:: \operatorname{sep} \le \min(Z, M^{\min(|A|, |B|)})

    with Z = `num_channels`, M = `num_templates`.

    Example:
        >>> shallow_upper_bound(num_channels=100, num_templates=3, num_left=4, num_right=4).value
        81

    Raises:
        BoundError: if a size is not positive.

    Reference:
        Cohen & Shashua (2017), arXiv:1605.06743.
    """
    who = "shallow_upper_bound"
    require_at_least(who, 1, num_channels=num_channels, num_templates=num_templates)
    require_at_least(who, 1, num_left=num_left, num_right=num_right)
    number = min(num_channels, num_templates ** min(num_left, num_right))
    return UpperBound(Magnitude.of(number), SHALLOW)
