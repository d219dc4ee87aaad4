"""Bounds on tensor-train networks: almost-everywhere lower bounds and minimal cuts."""

from rankscope.bounds.sizes import require_at_least, require_even, require_positions
from rankscope.errors import BoundError
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

LOWER_QUANTITY = "CP rank and odd-even separation rank"
KHRULKOV = Theorem(
    "Khrulkov et al. (2018)",
    "Thm 1; docs/proofs.md, section 12",
    "1711.00811",
    ("different cores", "even order", "almost all cores"),
    Status.PROVED_HERE,
)
ALKIN = Theorem(
    "Alkin (2024)",
    "main theorem",
    None,
    ("equal inner cores", "even order", "almost all cores"),
)
EQUAL_CORES = Theorem(
    "Rankscope, after Alkin (2024)",
    "docs/proofs.md, section 12",
    None,
    ("equal inner cores", "even order", "almost all cores"),
    Status.PROVED_HERE,
)
CUT = Theorem(
    "Levine et al. (2018)",
    "minimal cut of a chain: docs/proofs.md, section 11",
    "1704.01552",
    ("tensor train, equal or different cores", "all cores"),
    Status.PROVED_HERE,
)


def different_cores_lower_bound(*, order: int, size: int, bond: int) -> LowerBound:
    r"""CP rank of almost every tensor train.

    .. math:: \operatorname{rank}_{CP} \ge q^{d/2}, \qquad q = \min(n, r)

    with d = `order`, n = `size`, r = `bond`.

    Example:
        >>> different_cores_lower_bound(order=8, size=2, bond=3).value
        16

    Raises:
        BoundError: if the order is odd or a size is not positive.

    Reference:
        Khrulkov et al. (2018), Thm 1, arXiv:1711.00811; docs/proofs.md, section 12.
    """
    return _lower("different_cores_lower_bound", order, (size, bond), KHRULKOV)


def alkin_lower_bound(*, order: int, size: int, bond: int) -> LowerBound:
    r"""CP rank of almost every tensor train with equal inner cores, as published.

    .. math:: \operatorname{rank}_{CP} \ge q^{d/2}, \qquad q = \min(n, r - 1)

    Vacuous (zero) for r = 1. `equal_cores_lower_bound` is stronger.

    Example:
        >>> alkin_lower_bound(order=8, size=2, bond=2).value
        1

    Raises:
        BoundError: if the order is odd or a size is not positive.

    Reference:
        Alkin (2024), Expressive power of tensor-train networks with equal TT-cores, main theorem.
    """
    require_at_least("alkin_lower_bound", 1, bond=bond)
    return _lower("alkin_lower_bound", order, (size, bond - 1), ALKIN)


def equal_cores_lower_bound(*, order: int, size: int, bond: int) -> LowerBound:
    r"""CP rank of almost every tensor train with equal inner cores, with base min(n, r).

    .. math:: \operatorname{rank}_{CP} \ge \min(n, r)^{d/2}

    For n < r Alkin's witness is the identity on [n]^d; for n >= r its odd-even matricization
    restricted to the alphabet [r] is unitriangular: the positions of the letter r alternate
    between odd and even, and the column's are never before the row's.

    Example:
        >>> equal_cores_lower_bound(order=8, size=2, bond=2).value
        16

    Raises:
        BoundError: if the order is odd or a size is not positive.

    Reference:
        ours (proved), after Alkin (2024); docs/proofs.md, section 12.
    """
    return _lower("equal_cores_lower_bound", order, (size, bond), EQUAL_CORES)


def tensor_train_upper_bound(
    sizes: tuple[int, ...], bonds: tuple[int, ...], left: tuple[int, ...]
) -> UpperBound:
    r"""Minimal cut of any tensor train under any partition.

    .. math:: \min_{s \in \{A, B\}^d} \prod_{t : s_t \ne \text{side}(t)} n_t
              \prod_{t : s_t \ne s_{t+1}} r_t

    Args:
        sizes: size of each site.
        bonds: bond dimensions, one fewer than sites.
        left: positions of one side, from 0.

    Example:
        >>> tensor_train_upper_bound((2, 3, 2, 3), (4, 2, 4), (0, 1)).value
        2

    Raises:
        BoundError: if the bonds do not fit the sites, a size is not positive, or a side is empty.

    Reference:
        Levine et al. (2018), arXiv:1704.01552; docs/proofs.md, section 11.
    """
    who = "tensor_train_upper_bound"
    if len(bonds) != len(sizes) - 1:
        raise BoundError(
            f"{who}: {len(sizes)} sites need {len(sizes) - 1} bonds, got {len(bonds)}."
        )
    require_at_least(who, 1, smallest_size=min(sizes), smallest_bond=min(bonds, default=1))
    require_positions(who, left, len(sizes))
    return UpperBound(Magnitude.of(_chain_cut(sizes, bonds, left)), CUT)


def odd_even_upper_bound(*, order: int, size: int, bond: int) -> UpperBound:
    r"""Minimal cut of a uniform tensor train between odd and even positions.

    .. math:: n^{k} \;(n \le r), \qquad r\, n^{k-1} \;(r \le n \le r^2), \qquad
              r^{2k-1} \;(n \ge r^2), \qquad d = 2k

    and min(n, r²)^k for odd d = 2k + 1. Measured: almost all cores attain it.

    Example:
        >>> odd_even_upper_bound(order=6, size=3, bond=2).value
        18

    Raises:
        BoundError: if the order is below 2 or a size is not positive.

    Reference:
        Levine et al. (2018), arXiv:1704.01552; formula ours: docs/proofs.md, section 11.
    """
    require_at_least("odd_even_upper_bound", 2, order=order)
    require_at_least("odd_even_upper_bound", 1, size=size, bond=bond)
    pairs = order // 2
    if order % 2:
        number = min(size, bond**2) ** pairs
    else:
        number = min(size, bond) * min(size, bond**2) ** (pairs - 1)
    return UpperBound(Magnitude.of(number), CUT)


def left_right_upper_bound(*, order: int, size: int, bond: int) -> UpperBound:
    r"""Minimal cut of a uniform tensor train between its two halves.

    .. math:: \min(r, n^{\lfloor d/2 \rfloor})

    Example:
        >>> left_right_upper_bound(order=8, size=2, bond=3).value
        3

    Raises:
        BoundError: if the order is below 2 or a size is not positive.

    Reference:
        Levine et al. (2018), arXiv:1704.01552; formula ours: docs/proofs.md, section 11.
    """
    require_at_least("left_right_upper_bound", 2, order=order)
    require_at_least("left_right_upper_bound", 1, size=size, bond=bond)
    return UpperBound(Magnitude.of(min(bond, size ** (order // 2))), CUT)


def _lower(who: str, order: int, sizes: tuple[int, int], theorem: Theorem) -> LowerBound:
    require_at_least(who, 2, order=order)
    require_even(who, order=order)
    require_at_least(who, 1, size=sizes[0])
    require_at_least(who, 0 if theorem is ALKIN else 1, bond=sizes[1])
    return LowerBound(Magnitude.of(min(sizes) ** (order // 2)), theorem, LOWER_QUANTITY)


def _chain_cut(sizes: tuple[int, ...], bonds: tuple[int, ...], left: tuple[int, ...]) -> int:
    """Cheapest product over all ways to put cores on sides, one core at a time."""
    on_left, on_right = 1, 1
    for position, (size, bond) in enumerate(zip(sizes, (1, *bonds), strict=True)):
        is_left = position in left
        stay, move = on_left, on_right * bond
        back, keep = on_left * bond, on_right
        on_left = min(stay, move) * (1 if is_left else size)
        on_right = min(back, keep) * (size if is_left else 1)
    return min(on_left, on_right)
