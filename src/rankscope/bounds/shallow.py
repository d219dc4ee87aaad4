"""The bounds on shallow (CP) networks, which meet."""

from rankscope.bounds.sizes import require_at_least
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

SHALLOW = Theorem(
    "Cohen & Shashua (2017)",
    "shallow network; docs/proofs.md, section 13",
    "1605.06743",
    ("one hidden layer", "global product pooling", "all weights; attained by almost all"),
    Status.PROVED_HERE,
)
SHALLOW_WORDS = Theorem(
    "Rankscope, after Cohen & Shashua (2017)",
    "one word for each channel: docs/proofs.md, section 13",
    "1605.06743",
    ("one hidden layer", "global product pooling", "almost all weights"),
    Status.PROVED_HERE,
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
        Cohen & Shashua (2017), arXiv:1605.06743; docs/proofs.md, section 13.
    """
    magnitude = _smaller("shallow_upper_bound", num_channels, num_templates, (num_left, num_right))
    return UpperBound(magnitude, SHALLOW)


def shallow_lower_bound(
    *, num_channels: int, num_templates: int, num_left: int, num_right: int
) -> LowerBound:
    r"""Separation rank of almost every shallow network.

    .. math:: \operatorname{sep} \ge \min(Z, M^{\min(|A|, |B|)})

    Give channel z the z-th word w of k = min(|A|, |B|) letters in 1..M: its j-th factor is the unit
    vector of w_j at the j-th position of each side, that of 1 at the others, and its mixing weight
    is 1, or 0 when there are no words left. The coefficient matrix is then a partial permutation
    with min(Z, M^k) ones, and a rank reached at one point is reached almost everywhere.

    Example:
        >>> shallow_lower_bound(num_channels=5, num_templates=3, num_left=2, num_right=4).value
        5

    Raises:
        BoundError: if a size is not positive.

    Reference:
        ours (proved), after Cohen & Shashua (2017), arXiv:1605.06743; docs/proofs.md, section 13.
    """
    magnitude = _smaller("shallow_lower_bound", num_channels, num_templates, (num_left, num_right))
    return LowerBound(magnitude, SHALLOW_WORDS)


def _smaller(who: str, num_channels: int, num_templates: int, sides: tuple[int, int]) -> Magnitude:
    require_at_least(who, 1, num_channels=num_channels, num_templates=num_templates)
    require_at_least(who, 1, num_left=sides[0], num_right=sides[1])
    return Magnitude.of(min(num_channels, int(num_templates ** min(sides))))
