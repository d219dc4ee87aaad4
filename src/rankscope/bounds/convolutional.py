"""Bounds on convolutional arithmetic circuits (hierarchical Tucker) of any pooling geometry."""

import math
from dataclasses import dataclass

from rankscope.bounds.sizes import require_at_least, require_positions
from rankscope.errors import BoundError
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

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
        """How many tokens the first level pools."""
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
    size = circuit.num_templates
    costs = [
        (1, size) if token in left else (size, 1) for token in range(circuit.pooling.num_tokens)
    ]
    for windows, channels in zip(circuit.pooling.levels, circuit.channels, strict=True):
        costs = [_pooled([costs[member] for member in window], channels) for window in windows]
    return UpperBound(Magnitude.of(min(costs[0])), CUT)


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
    nodes = [
        (int(token in left), int(token not in left), 1)
        for token in range(circuit.pooling.num_tokens)
    ]
    for windows, channels in zip(circuit.pooling.levels, circuit.channels, strict=True):
        merged = []
        for window in windows:
            on_left = sum(nodes[member][0] for member in window)
            on_right = sum(nodes[member][1] for member in window)
            product = channels * math.prod(nodes[member][2] for member in window)
            whole = circuit.num_templates ** min(on_left, on_right)
            merged.append((on_left, on_right, min(whole, product)))
        nodes = merged
    return UpperBound(Magnitude.of(nodes[0][2]), POOLING_UPPER)


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
    split = sum(
        any(token in left for token in window) and any(token not in left for token in window)
        for window in circuit.pooling.levels[0]
    )
    base = min(circuit.channels[0], circuit.num_templates)
    return LowerBound(Magnitude.of(base**split), POOLING_LOWER)


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
    return LowerBound(Magnitude.of(base**power), TENSOR_ANALYSIS, "CP rank")


def _pooled(children: list[tuple[int, int]], channels: int) -> tuple[int, int]:
    """Cheapest cuts below a node that lies on the left, and on the right."""
    across = channels * math.prod(min(child) for child in children)
    return (
        min(across, math.prod(child[0] for child in children)),
        min(across, math.prod(child[1] for child in children)),
    )
