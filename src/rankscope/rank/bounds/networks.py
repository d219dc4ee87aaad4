"""Bounds on the separation rank of convolutional, recurrent and shallow networks."""

import functools
import math
import operator
from dataclasses import dataclass

from rankscope.errors import BoundError
from rankscope.rank.bounds.counting import multiset_magnitude
from rankscope.rank.bounds.polynomials import chain_cut, smaller
from rankscope.rank.bounds.sizes import (
    LARGEST,
    require_at_least,
    require_at_most,
    require_even,
    require_positions,
)
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

# --- Bounds on convolutional arithmetic circuits (hierarchical Tucker) of any pooling geometry ----


TENSOR_ANALYSIS = Theorem(
    "Cohen et al. (2016)",
    "Thm 1; docs/proofs.md, section 14",
    "1509.05009",
    ("windows of 2", "almost all weights, shared or not"),
    Status.PROVED_HERE,
)
POOLING_LOWER = Theorem(
    "Cohen & Shashua (2017)",
    "lower bound; docs/proofs.md, section 14",
    "1605.06743",
    ("almost all weights, shared or not", "linearly independent templates"),
    Status.PROVED_HERE,
)
POOLING_UPPER = Theorem(
    "Cohen & Shashua (2017)",
    "upper bound; docs/proofs.md, section 14",
    "1605.06743",
    ("all weights",),
    Status.PROVED_HERE,
)
CUT = Theorem(
    "Levine et al. (2018)",
    "minimal cut, a copy tensor counted once: docs/proofs.md, section 11",
    "1704.01552",
    ("all weights",),
    Status.PROVED_HERE,
)


@dataclass(frozen=True)
class Pooling:
    """Which nodes of a level share a window of the next, from the tokens up to the output.

    Args:
        levels: for each level its windows, each a tuple of positions in the level below.

    Example:
        >>> Pooling.uniform(window=2, num_tokens=4).levels
        (((0, 1), (2, 3)), ((0, 1),))
    """

    levels: tuple[tuple[tuple[int, ...], ...], ...]

    def __post_init__(self) -> None:
        for number, (below, windows) in enumerate(
            zip((self.num_tokens, *map(len, self.levels)), self.levels, strict=False), start=1
        ):
            members = sorted(member for window in windows for member in window)
            if members != list(range(below)) or not all(windows):
                raise BoundError(
                    f"Pooling: the windows of level {number} must share out 0..{below - 1}, each "
                    f"once and none empty, got {windows}."
                )
        if not self.levels or len(self.levels[-1]) != 1:
            count = len(self.levels[-1]) if self.levels else 0
            raise BoundError(f"Pooling: the last level must be one window, got {count}.")

    @classmethod
    def uniform(cls, *, window: int, num_tokens: int) -> "Pooling":
        """Neighbours pooled by windows of one size until one node is left.

        Raises:
            BoundError: if the number of tokens is no power of the window.
        """
        require_at_least("Pooling.uniform", 2, window=window, num_tokens=num_tokens)
        levels, count = [], num_tokens
        while count > 1:
            if count % window:
                raise BoundError(
                    f"Pooling.uniform: {num_tokens} tokens are no power of the window {window}."
                )
            count //= window
            levels.append(tuple(tuple(range(k * window, (k + 1) * window)) for k in range(count)))
        return cls(tuple(levels))

    @property
    def num_tokens(self) -> int:
        """Number of tokens that the first level pools."""
        return sum(map(len, self.levels[0])) if self.levels else 0


@dataclass(frozen=True)
class Circuit:
    """Sizes of a convolutional arithmetic circuit.

    Args:
        pooling: its windows.
        num_templates: M, the size of a token's representation.
        channels: r_0, r_1, …, one for each level: the channels that its windows multiply.
    """

    pooling: Pooling
    num_templates: int
    channels: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.channels) != len(self.pooling.levels):
            raise BoundError(
                f"Circuit: {len(self.pooling.levels)} pooling levels need as many channel sizes, "
                f"got {len(self.channels)}."
            )
        require_at_least(
            "Circuit", 1, num_templates=self.num_templates, fewest_channels=min(self.channels)
        )


def convolutional_upper_bound(circuit: Circuit, left: tuple[int, ...]) -> UpperBound:
    r"""Minimal cut of the circuit's tree; all 46 unshared cases measured attain it.

    .. math:: c_0^{j, s} = 1 \text{ or } M, \qquad
              c_l^{k, s} = \min\Bigl(\prod_t c_{l-1}^{t, s},\;
              r_{l-1} \prod_t \min_{s'} c_{l-1}^{t, s'}\Bigr), \qquad
              \operatorname{sep} \le \min_s c_L^{s}

    The channels of a window are one index with several ends, counted once. Shared weights can lie
    below the bound.

    Example:
        >>> circuit = Circuit(Pooling.uniform(window=2, num_tokens=8), 3, (3, 2, 2))
        >>> convolutional_upper_bound(circuit, (0, 2, 4, 6)).value
        81
        >>> convolutional_upper_bound(circuit, (0, 1, 2, 3)).value
        2

    Raises:
        BoundError: if the left side repeats or leaves the tokens, or a side is empty.

    Reference:
        Levine et al. (2018), arXiv:1704.01552; docs/proofs.md, section 11.
    """
    require_positions("convolutional_upper_bound", left, circuit.pooling.num_tokens)
    one, size, members = Magnitude.of(1), Magnitude.of(circuit.num_templates), set(left)
    costs = [
        (one, size) if token in members else (size, one)
        for token in range(circuit.pooling.num_tokens)
    ]
    for windows, channels in zip(circuit.pooling.levels, circuit.channels, strict=True):
        costs = [_pool_cuts([costs[member] for member in window], channels) for window in windows]
    return UpperBound(smaller(*costs[0]), CUT)


def pooling_upper_bound(circuit: Circuit, left: tuple[int, ...]) -> UpperBound:
    r"""The published recursion over windows; never below the minimal cut.

    .. math:: c^{0,k} = 1, \qquad c^{l,k} = \min\Bigl(M^{\min(|A_{l,k}|, |B_{l,k}|)},\;
              r_{l-1} \prod_t c^{l-1, t}\Bigr)

    Example:
        >>> circuit = Circuit(Pooling.uniform(window=2, num_tokens=4), 3, (3, 2))
        >>> pooling_upper_bound(circuit, (0, 1)).value
        2

    Raises:
        BoundError: if the left side repeats or leaves the tokens, or a side is empty.

    Reference:
        Cohen & Shashua (2017), arXiv:1605.06743; docs/proofs.md, section 14.
    """
    require_positions("pooling_upper_bound", left, circuit.pooling.num_tokens)
    # Each node: tokens on the left, tokens on the right, bound so far.
    one, members = Magnitude.of(1), set(left)
    nodes = [
        (int(token in members), int(token not in members), one)
        for token in range(circuit.pooling.num_tokens)
    ]
    for windows, channels in zip(circuit.pooling.levels, circuit.channels, strict=True):
        merged = []
        for window in windows:
            on_left = sum(nodes[member][0] for member in window)
            on_right = sum(nodes[member][1] for member in window)
            product = _product(channels, [nodes[member][2] for member in window])
            whole = Magnitude.of_power(circuit.num_templates, min(on_left, on_right))
            merged.append((on_left, on_right, smaller(whole, product)))
        nodes = merged
    return UpperBound(nodes[0][2], POOLING_UPPER)


def pooling_lower_bound(circuit: Circuit, left: tuple[int, ...]) -> LowerBound:
    r"""The published lower bound: first windows that the partition splits.

    .. math:: \operatorname{sep} \ge \min(r_0, M)^S, \qquad
              S = \#\{\text{first-level windows meeting both sides}\}

    Example:
        >>> circuit = Circuit(Pooling.uniform(window=2, num_tokens=4), 3, (3, 2))
        >>> pooling_lower_bound(circuit, (0, 2)).value
        9

    Raises:
        BoundError: if the left side repeats or leaves the tokens, or a side is empty.

    Reference:
        Cohen & Shashua (2017), arXiv:1605.06743; docs/proofs.md, section 14.
    """
    require_positions("pooling_lower_bound", left, circuit.pooling.num_tokens)
    members = set(left)
    split = sum(
        0 < len(members.intersection(window)) < len(window) for window in circuit.pooling.levels[0]
    )
    base = min(circuit.channels[0], circuit.num_templates)
    return LowerBound(Magnitude.of_power(base, split), POOLING_LOWER)


def convolutional_cp_lower_bound(circuit: Circuit) -> LowerBound:
    r"""CP rank of almost every circuit with windows of two.

    .. math:: \operatorname{rank}_{CP} \ge \min(r_0, M)^{N/2}

    Example:
        >>> circuit = Circuit(Pooling.uniform(window=2, num_tokens=8), 2, (2, 2, 2))
        >>> convolutional_cp_lower_bound(circuit).value
        16

    Raises:
        BoundError: if a window does not hold two.

    Reference:
        Cohen et al. (2016), Thm 1, arXiv:1509.05009 (also Isabelle/AFP Deep_Learning);
        docs/proofs.md, section 14.
    """
    for windows in circuit.pooling.levels:
        for window in windows:
            if len(window) != 2:
                raise BoundError(
                    "convolutional_cp_lower_bound: the theorem needs windows of 2, got one of "
                    f"{len(window)}; use pooling_lower_bound."
                )
    base = min(circuit.channels[0], circuit.num_templates)
    power = circuit.pooling.num_tokens // 2
    return LowerBound(Magnitude.of_power(base, power), TENSOR_ANALYSIS, "CP rank")


def _pool_cuts(
    children: list[tuple[Magnitude, Magnitude]], channels: int
) -> tuple[Magnitude, Magnitude]:
    """Cheapest cuts below a node that lies on the left, and on the right."""
    across = _product(channels, [smaller(*child) for child in children])
    on_left, on_right = (_product(1, [child[side] for child in children]) for side in (0, 1))
    return smaller(across, on_left), smaller(across, on_right)


def _product(start: int, factors: list[Magnitude]) -> Magnitude:
    return functools.reduce(operator.mul, factors, Magnitude.of(start))


# --- Bounds on recurrent arithmetic circuits: start against end, and any partition ----------------


# Deeper circuits than this multiply binomials that nobody reads.
MAX_DEPTH = 64
# Layers times tokens, a few seconds of work.
MAX_STATES = 2**17
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
    sites = [
        multiset_magnitude(narrow, math.comb(steps + depth - 1, depth - 1)) for steps in remaining
    ]
    if is_on_templates:
        sites = [smaller(Magnitude.of(num_templates), site) for site in sites]
    bonds = [_states(steps, num_channels, depth) for steps in remaining[:-1]]
    quantity = {"quantity": ANY_GRID_QUANTITY} if is_on_templates else {}
    return UpperBound(chain_cut(sites, bonds, left), RECURRENT_CUT, **quantity)


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
        number = smaller(number, _grid(num_tokens // 2, num_templates, num_channels, depth))
    return UpperBound(number, START_END_UPPER)


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
    number = smaller(
        _grid(half, num_templates, num_channels, depth), _states(half, num_channels, depth)
    )
    return UpperBound(number, START_END_UPPER, GRID_QUANTITY)


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
        number = smaller(Magnitude.of(num_channels), Magnitude.of_power(num_templates, half))
    else:
        number = multiset_magnitude(min(num_templates, num_channels), half)
    return LowerBound(number, START_END_LOWER)


def _check(who: str, num_tokens: int, sizes: tuple[int, int], depth: int) -> None:
    _check_sizes(who, num_tokens, sizes, depth)
    require_even(who, num_tokens=num_tokens)


def _check_sizes(who: str, num_tokens: int, sizes: tuple[int, int], depth: int) -> None:
    require_at_least(who, 2, num_tokens=num_tokens)
    require_at_least(who, 1, num_templates=sizes[0], num_channels=sizes[1], depth=depth)
    require_at_most(who, MAX_DEPTH, depth=depth)
    require_at_most(who, MAX_STATES // depth, num_tokens=num_tokens)
    require_at_most(who, LARGEST, num_templates=sizes[0], num_channels=sizes[1])


def _states(half: int, channels: int, depth: int) -> Magnitude:
    return _product(
        1, [multiset_magnitude(channels, math.comb(half + j - 1, j)) for j in range(depth)]
    )


def _grid(half: int, templates: int, channels: int, depth: int) -> Magnitude:
    narrow = min(templates, channels)
    if depth == 1:
        return Magnitude.of_power(narrow, half)
    return Magnitude.of(narrow) * Magnitude.of_power(templates, half - 1)


# --- The bounds on shallow (CP) networks, which meet ----------------------------------------------


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
    return smaller(Magnitude.of(num_channels), Magnitude.of_power(num_templates, min(sides)))
