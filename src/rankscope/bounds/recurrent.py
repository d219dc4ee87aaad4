"""Start-end bounds on recurrent arithmetic circuits."""

import math

from rankscope.bounds.binomials import multiset
from rankscope.bounds.sizes import require_at_least, require_even
from rankscope.errors import BoundError
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

# Deeper circuits than this multiply binomials that nobody reads.
MAX_DEPTH = 64
GRID_QUANTITY = "start-end rank on the grid of basis templates"
START_END_LOWER = Theorem(
    "Levine et al. (2017)",
    "start-end separation rank",
    "1710.09431",
    ("depth 1 or 2", "almost all weights"),
    Status.RECALLED,
)
START_END_UPPER = Theorem(
    "Rankscope, lattice paths",
    "spec section 2.6",
    None,
    ("recurrent arithmetic circuit", "all weights"),
    Status.PROVED_HERE,
)


def start_end_upper_bound(
    *, num_tokens: int, num_templates: int, num_channels: int, depth: int
) -> UpperBound:
    r"""Largest start-end separation rank of a recurrent arithmetic circuit.

    .. math:: \operatorname{sep} \le \prod_{j=0}^{L-1}
              \left(\!\!\binom{R}{\binom{T/2 + j - 1}{j}}\!\!\right)

    The output sees the start only through the layers' states at half time, and its degree in that
    of layer L - j is the number of lattice paths C(T/2 + j - 1, j). One layer is multilinear in
    the templates, so the grid bound of `start_end_grid_upper_bound` holds for it as well.

    Example:
        >>> start_end_upper_bound(num_tokens=8, num_templates=2, num_channels=2, depth=2).value
        10

    Raises:
        BoundError: if the number of tokens is odd or a size is out of range.

    Reference:
        ours (proved), after Levine et al. (2017), arXiv:1710.09431.
    """
    _check("start_end_upper_bound", num_tokens, (num_templates, num_channels), depth)
    number = _states(num_tokens // 2, num_channels, depth)
    if depth == 1:
        number = min(number, _grid(num_tokens // 2, num_templates, num_channels, depth))
    return UpperBound(Magnitude.of(number), START_END_UPPER)


def start_end_grid_upper_bound(
    *, num_tokens: int, num_templates: int, num_channels: int, depth: int
) -> UpperBound:
    r"""Largest start-end rank of the grid tensor on the M basis templates.

    .. math:: \min\Bigl(M^{T/2},\; \min(M, R)\, M^{T/2 - 1},\; \prod_{j=0}^{L-1}
              \left(\!\!\binom{R}{\binom{T/2 + j - 1}{j}}\!\!\right)\Bigr)

    and min(M, R)^(T/2) for one layer. Exact in all 72 cases measured. From two layers on the
    output is not multilinear in the templates, so this bounds the grid and not the function.

    Example:
        >>> start_end_grid_upper_bound(num_tokens=6, num_templates=3, num_channels=2, depth=2).value
        8

    Raises:
        BoundError: if the number of tokens is odd or a size is out of range.

    Reference:
        ours (proved), after Levine et al. (2017), arXiv:1710.09431.
    """
    _check("start_end_grid_upper_bound", num_tokens, (num_templates, num_channels), depth)
    half = num_tokens // 2
    number = min(
        _grid(half, num_templates, num_channels, depth), _states(half, num_channels, depth)
    )
    return UpperBound(Magnitude.of(number), START_END_UPPER, GRID_QUANTITY)


def start_end_lower_bound(
    *, num_tokens: int, num_templates: int, num_channels: int, depth: int
) -> LowerBound:
    r"""Start-end separation rank of almost every circuit of one or two layers.

    .. math:: \min(R, M^{T/2}) \;(L = 1), \qquad
              \left(\!\!\binom{\min(M, R)}{T/2}\!\!\right) \;(L = 2)

    Example:
        >>> start_end_lower_bound(num_tokens=8, num_templates=2, num_channels=2, depth=2).value
        5

    Raises:
        BoundError: if the number of tokens is odd, a size is out of range, or depth > 2.

    Reference:
        Levine et al. (2017), as recalled, arXiv:1710.09431.
    """
    _check("start_end_lower_bound", num_tokens, (num_templates, num_channels), depth)
    half = num_tokens // 2
    if depth > 2:
        raise BoundError(
            f"start_end_lower_bound: the theorem covers depth 1 and 2, got {depth}; "
            "measure instead."
        )
    if depth == 1:
        number = min(num_channels, num_templates**half)
    else:
        number = multiset(min(num_templates, num_channels), half)
    return LowerBound(Magnitude.of(number), START_END_LOWER)


def _check(who: str, num_tokens: int, sizes: tuple[int, int], depth: int) -> None:
    require_at_least(who, 2, num_tokens=num_tokens)
    require_even(who, num_tokens=num_tokens)
    require_at_least(who, 1, num_templates=sizes[0], num_channels=sizes[1], depth=depth)
    if depth > MAX_DEPTH:
        raise BoundError(f"{who}: depth must be at most {MAX_DEPTH}, got {depth}.")


def _states(half: int, channels: int, depth: int) -> int:
    return math.prod(multiset(channels, math.comb(half + j - 1, j)) for j in range(depth))


def _grid(half: int, templates: int, channels: int, depth: int) -> int:
    narrow = min(templates, channels)
    if depth == 1:
        return int(narrow**half)
    return int(narrow * templates ** (half - 1))
