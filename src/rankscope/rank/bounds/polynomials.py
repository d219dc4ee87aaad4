"""Bounds for tensor trains, sparse polynomials and networks of a given degree."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx

from rankscope.errors import BoundError, readable
from rankscope.rank.bounds.counting import FreeCount, multiset_magnitude, sum_of_minima
from rankscope.rank.bounds.sizes import (
    LARGEST,
    require_at_least,
    require_at_most,
    require_depth,
    require_even,
    require_positions,
)
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

# --- Bounds on tensor-train networks: almost-everywhere lower bounds and minimal cuts -------------


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
    return UpperBound(
        chain_cut([Magnitude.of(n) for n in sizes], map(Magnitude.of, bonds), left), CUT
    )


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
    pairs, base = order // 2, min(size, bond**2)
    if order % 2:
        return UpperBound(Magnitude.of_power(base, pairs), CUT)
    return UpperBound(Magnitude.of(min(size, bond)) * Magnitude.of_power(base, pairs - 1), CUT)


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
    half = Magnitude.of_power(size, order // 2)
    return UpperBound(smaller(Magnitude.of(bond), half), CUT)


def _lower(who: str, order: int, sizes: tuple[int, int], theorem: Theorem) -> LowerBound:
    require_at_least(who, 2, order=order)
    require_even(who, order=order)
    require_at_least(who, 1, size=sizes[0])
    require_at_least(who, 0 if theorem is ALKIN else 1, bond=sizes[1])
    return LowerBound(Magnitude.of_power(min(sizes), order // 2), theorem, LOWER_QUANTITY)


def chain_cut(
    sizes: Sequence[Magnitude], bonds: Iterable[Magnitude], left: tuple[int, ...]
) -> Magnitude:
    """Cheapest product over all ways to put cores on sides, one core at a time.

    Numbers of any length: an integer while it is short, its logarithm after.
    """
    one, members = Magnitude.of(1), set(left)
    on_left, on_right = one, one
    for position, (size, bond) in enumerate(zip(sizes, (one, *bonds), strict=True)):
        is_left = position in members
        from_left = smaller(on_left, on_right * bond)
        from_right = smaller(on_left * bond, on_right)
        on_left = from_left if is_left else from_left * size
        on_right = from_right * size if is_left else from_right
    return smaller(on_left, on_right)


def smaller(first: Magnitude, second: Magnitude) -> Magnitude:
    """The smaller of two numbers of any length."""
    return first if first.is_below(second) else second


# --- Separation rank of sparse polynomials with generic coefficients, by maximum matching ---------


Exponents = tuple[int, ...]
MATCHING_UPPER = Theorem(
    "Rankscope, maximum matching",
    "docs/proofs.md, section 17",
    None,
    ("all coefficients",),
    Status.PROVED_HERE,
)
MATCHING_LOWER = Theorem(
    "Rankscope, maximum matching",
    "docs/proofs.md, section 17",
    None,
    ("almost all coefficients",),
    Status.PROVED_HERE,
)


def sparse_polynomial_upper_bound(
    terms: tuple[Exponents, ...], left: tuple[int, ...]
) -> UpperBound:
    r"""Largest separation rank of a polynomial with these monomials, for all coefficients.

    Each term is an edge between its part in the left variables and its part in the right ones; the
    coefficient matrix has rank at most the maximum matching of that graph, since a cover by as
    many rows and columns holds all its entries (Kőnig).

    Args:
        terms: the exponents of each monomial, one for each variable.
        left: positions of the left variables, from 0.

    Example:
        >>> sparse_polynomial_upper_bound(((1, 1), (2, 1)), (0,)).value
        1

    Raises:
        BoundError: if there are no terms, they repeat or differ in length, an exponent is
            negative, or a side is empty.

    Reference:
        Kőnig (1931); Edmonds (1967), Systems of distinct representatives and linear algebra.
    """
    return UpperBound(Magnitude.of(_matching(terms, left)), MATCHING_UPPER)


def sparse_polynomial_lower_bound(
    terms: tuple[Exponents, ...], left: tuple[int, ...]
) -> LowerBound:
    r"""Separation rank of a polynomial with these monomials, for almost all coefficients.

    The coefficients on a maximum matching set to one and all others to zero give a matrix of that
    rank, so almost all coefficients do.

    Example:
        >>> sparse_polynomial_lower_bound(((1, 1), (2, 2)), (0,)).value
        2

    Raises:
        BoundError: as `sparse_polynomial_upper_bound`.

    Reference:
        Edmonds (1967), Systems of distinct representatives and linear algebra.
    """
    return LowerBound(Magnitude.of(_matching(terms, left)), MATCHING_LOWER)


def _matching(terms: tuple[Exponents, ...], left: tuple[int, ...]) -> int:
    _check(terms, left)
    graph = networkx.Graph()
    tops = []
    for term in terms:
        top = ("left", tuple(term[position] for position in sorted(left)))
        bottom = ("right", tuple(power for i, power in enumerate(term) if i not in left))
        graph.add_edge(top, bottom)
        tops.append(top)
    matching = networkx.bipartite.hopcroft_karp_matching(graph, top_nodes=dict.fromkeys(tops))
    return len(matching) // 2


def _check(terms: tuple[Exponents, ...], left: tuple[int, ...]) -> None:
    who = "sparse polynomial"
    if not terms:
        raise BoundError(f"{who}: needs at least 1 term, got 0; the zero polynomial has rank 0.")
    for term in terms:
        if len(term) != len(terms[0]) or min(term, default=0) < 0:
            raise BoundError(
                f"{who}: every term needs {len(terms[0])} exponents of at least 0, got {term}."
            )
    if len(set(terms)) != len(terms):
        raise BoundError(
            f"{who}: {len(terms)} terms hold only {len(set(terms))} different monomials; "
            "add up the coefficients of equal ones."
        )
    require_positions(who, left, len(terms[0]))


# --- Fully connected networks whose layers are products: bounds by degree -------------------------


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
    require_at_most(who, LARGEST, num_inputs=num_inputs, degree=degree)
    left, right = FreeCount(num_left), FreeCount(num_inputs - num_left)
    total = int(degree**depth)
    if depth > 1:
        return UpperBound(sum_of_minima(left, right, total), FULLY_CONNECTED)
    if degree > MAX_DEGREE:
        raise BoundError(
            f"{who}: at depth 1 the degree must be at most {MAX_DEGREE:,}, got {readable(degree)}."
        )
    number = sum(
        min(left.value(part), right.value(degree - part), math.comb(degree, part))
        for part in range(degree + 1)
    )
    return UpperBound(Magnitude.of(number), FULLY_CONNECTED)


MONOMIAL_POWERS = Theorem(
    "Rankscope, powers of a sum of monomials",
    "docs/proofs.md, section 27",
    None,
    (
        "layers (W_1 x) * ... * (W_degree x) without activation, of degree 2 or more",
        "two layers or more",
        "almost all weights",
    ),
    Status.PROVED_HERE,
)


def fully_connected_lower_bound(
    *, num_inputs: int, num_left: int, degree: int, depth: int, width: int
) -> LowerBound:
    r"""Separation rank that a network of product layers has for almost all weights.

    .. math:: \operatorname{sep} \ge \left(\!\!\binom{m}{\delta^{p-1}}\!\!\right), \qquad
              m = \min(w, a + 1, n - a + 1)

    with n = `num_inputs`, a = `num_left`, δ = `degree`, p = `depth`, w = `width`. The first layer
    makes x_0^δ, y_0^δ and monomials x_i y_i^(δ-1), the second their sum to the power of δ, and the
    others raise it further.

    Example:
        >>> fully_connected_lower_bound(num_inputs=4, num_left=2, degree=3, depth=2, width=4).value
        10

    Raises:
        BoundError: if a side is empty, the degree or the depth is below 2, or a size is too large.

    Reference:
        ours (proved), after Navon (2021), Task 1; docs/proofs.md, section 27.
    """
    who = "fully_connected_lower_bound"
    num_right = num_inputs - num_left
    require_at_least(who, 1, num_left=num_left, num_right=num_right, width=width)
    require_at_least(who, 2, degree=degree, depth=depth)
    require_depth(who, depth)
    require_at_most(who, LARGEST, num_inputs=num_inputs, degree=degree, width=width)
    kinds = min(width, num_left + 1, num_right + 1)
    return LowerBound(multiset_magnitude(kinds, int(degree ** (depth - 1))), MONOMIAL_POWERS)


# --- Which degree of a layer is best for a budget of weight matrices ------------------------------


# Where ln(degree) / degree is largest, if degree and depth may be any real numbers.
BEST_REAL_DEGREE = math.e


@dataclass(frozen=True)
class DegreeChoice:
    """The degrees that reach the largest total degree within a budget.

    Args:
        budget: how many weight matrices the whole network may hold.
        degrees: the best degrees, several if they tie.
        depths: the depth that the budget buys with each.
        total_degree: degree of the network's output, degree**depth.
    """

    budget: int
    degrees: tuple[int, ...]
    depths: tuple[int, ...]
    total_degree: int

    def __str__(self) -> str:
        pairs = zip(self.degrees, self.depths, strict=True)
        choices = " or ".join(f"degree {degree} at depth {depth}" for degree, depth in pairs)
        return f"{self.budget} weight matrices: {choices} (total degree {self.total_degree:,})"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "budget": self.budget,
            "degrees": list(self.degrees),
            "depths": list(self.depths),
            "total_degree": self.total_degree,
        }


def growth_per_matrix(degree: int | float) -> float:
    r"""Logarithm of the total degree that one weight matrix buys, at real depth.

    .. math:: \max_\delta \delta^{B / \delta} \iff \max_\delta \frac{\ln \delta}{\delta}

    Largest at e; among integers at 3, since 3² > 2³.

    Reference:
        Navon (2021), Attention is optimal building block, eq. (5).
    """
    return math.log(degree) / degree


def best_degree(budget: int) -> DegreeChoice:
    r"""The degree of largest total degree when a layer of degree δ holds δ matrices.

    .. math:: \max_{\delta \ge 2} \delta^{\lfloor B / \delta \rfloor}

    At real depth this is 3; at integer depth 3 can lose.

    Example:
        >>> print(best_degree(8))
        8 weight matrices: degree 2 at depth 4 or degree 4 at depth 2 (total degree 16)

    Raises:
        BoundError: if the budget holds no layer.

    Reference:
        Navon (2021), Conclusion 1.1, corrected for integer depth: docs/proofs.md, section 18.
    """
    require_at_least("best_degree", 2, budget=budget)
    return _best(budget, [(degree, degree) for degree in range(2, _widest(budget) + 1)])


def best_chain_degree(budget: int) -> DegreeChoice:
    r"""The odd degree of largest total degree when a chain layer holds (δ + 1)/2 matrices.

    .. math:: \max_{\delta = 3, 5, \dots} \delta^{\lfloor 2 B / (\delta + 1) \rfloor}

    At real depth this is 3 again, since ln 3 / 2 > ln 5 / 3.

    Example:
        >>> best_chain_degree(3).degrees
        (5,)

    Raises:
        BoundError: if the budget holds no layer.

    Reference:
        ours, after Navon (2021), eq. (2); docs/proofs.md, section 18.
    """
    require_at_least("best_chain_degree", 2, budget=budget)
    widest = _widest(budget)
    return _best(budget, [(2 * matrices - 1, matrices) for matrices in range(2, widest + 1)])


def budgets_where_three_loses(largest: int) -> tuple[int, ...]:
    """Budgets up to `largest` for which a degree other than 3 reaches a larger total degree.

    There are twelve in all, proved by a bound from 38 on and a search below.

    Example:
        >>> budgets_where_three_loses(100)
        (2, 4, 5, 8, 10, 11, 14, 16, 17, 20, 26, 32)

    Raises:
        BoundError: if there is no budget to look at.

    Reference:
        ours, after Navon (2021), Conclusion 1.1; docs/proofs.md, section 18.
    """
    require_at_least("budgets_where_three_loses", 2, largest=largest)
    return tuple(budget for budget in range(2, largest + 1) if 3 not in best_degree(budget).degrees)


def _widest(budget: int) -> int:
    """Layers holding more than half of a larger budget stand alone, and degree 2 beats them."""
    return budget if budget < 32 else budget // 2


def _best(budget: int, layers: list[tuple[int, int]]) -> DegreeChoice:
    best, chosen = 0, list[tuple[int, int]]()
    for degree, matrices in layers:
        depth = budget // matrices
        total = int(degree**depth)
        if total > best:
            best, chosen = total, []
        if total == best:
            chosen.append((degree, depth))
    return DegreeChoice(
        budget, tuple(pair[0] for pair in chosen), tuple(pair[1] for pair in chosen), best
    )
