"""Bounds on recurrent arithmetic circuits: start against end, and any partition."""

import math

from rankscope.bounds.binomials import multiset
from rankscope.bounds.sizes import require_at_least, require_even, require_positions
from rankscope.bounds.tensor_train import tensor_train_upper_bound
from rankscope.errors import BoundError
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

# Deeper circuits than this multiply binomials that nobody reads.
MAX_DEPTH = 64
GRID_QUANTITY = "start-end rank on the grid of basis templates"
ANY_GRID_QUANTITY = "rank on the grid of basis templates"
START_END_LOWER = Theorem(
    "Levine et al. (2017)",
    "start-end separation rank",
    "1710.09431",
    ("depth 1 or 2", "almost all weights"),
    Status.RECALLED,
)
START_END_UPPER = Theorem(
    "Rankscope, lattice paths",
    "docs/proofs.md, section 15",
    None,
    ("recurrent arithmetic circuit", "all weights"),
    Status.PROVED_HERE,
)
RECURRENT_CUT = Theorem(
    "Rankscope, a train of monomials",
    "docs/proofs.md, section 15",
    None,
    ("recurrent arithmetic circuit", "all weights"),
    Status.PROVED_HERE,
)


def recurrent_upper_bound(
    left: tuple[int, ...],
    *,
    num_tokens: int,
    num_templates: int,
    num_channels: int,
    depth: int,
    is_on_templates: bool,
) -> UpperBound:
    r"""Largest rank of a recurrent arithmetic circuit under any partition, by a minimal cut.

    .. math:: n_t = \left(\!\!\binom{\min(M, R)}{\binom{T - t + L - 1}{L - 1}}\!\!\right), \qquad
              r_t = \prod_{j=0}^{L-1} \left(\!\!\binom{R}{\binom{T - t + j - 1}{j}}\!\!\right)

    are the sites and bonds of a tensor train, and n_t is at most M on the M basis templates.
    Proof: each token and each state enters the output by products only, as often as there are
    lattice paths from it to the end. So the output is homogeneous of degree C(T - t + L - 1, L - 1)
    in the vector W x^t of min(M, R) free numbers, and of degree C(T - t + j - 1, j) in the state
    of layer L - j at time t. Its monomials in the states at time t are r_t many; written in the
    states one step earlier they are sums of the r_(t-1) monomials there, with coefficients linear
    in the n_t monomials of W x^t. That is a tensor train in those monomials, so its cut holds.

    Never above the start-end bounds, and on templates exact in all 2,970 cases with T <= 6,
    M, R, L <= 3 and at most 81 combinations on a side.

    Args:
        left: positions of one side, from 0.
        num_tokens: T.
        num_templates: M.
        num_channels: R.
        depth: L.
        is_on_templates: bound the grid of basis templates, not all input vectors.

    Example:
        >>> sizes = {"num_tokens": 6, "num_templates": 3, "num_channels": 2, "depth": 2}
        >>> recurrent_upper_bound((0, 2, 4), **sizes, is_on_templates=True).value
        18

    Raises:
        BoundError: if a side is empty, or a size is out of range.

    Reference:
        ours (proved), after Levine et al. (2017), arXiv:1710.09431.
    """
    _check_sizes("recurrent_upper_bound", num_tokens, (num_templates, num_channels), depth)
    require_positions("recurrent_upper_bound", left, num_tokens)
    narrow = min(num_templates, num_channels)
    # Steps that are still to come after each token.
    remaining = range(num_tokens - 1, -1, -1)
    sites = [multiset(narrow, math.comb(steps + depth - 1, depth - 1)) for steps in remaining]
    if is_on_templates:
        sites = [min(num_templates, site) for site in sites]
    bonds = tuple(_states(steps, num_channels, depth) for steps in remaining[:-1])
    cut = tensor_train_upper_bound(tuple(sites), bonds, left)
    quantity = ANY_GRID_QUANTITY if is_on_templates else cut.quantity
    return UpperBound(cut.magnitude, RECURRENT_CUT, quantity)


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

    and min(M, R)^(T/2) for one layer. From two layers on the output is not multilinear in the
    templates, so this bounds the grid and not the function. `recurrent_upper_bound` can be smaller
    from M > 4 on (T = 4, M = 5, R = 2, L = 3: 8 instead of 10, and 8 is measured).

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
    _check_sizes(who, num_tokens, sizes, depth)
    require_even(who, num_tokens=num_tokens)


def _check_sizes(who: str, num_tokens: int, sizes: tuple[int, int], depth: int) -> None:
    require_at_least(who, 2, num_tokens=num_tokens)
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
