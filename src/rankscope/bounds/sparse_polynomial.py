"""Separation rank of sparse polynomials with generic coefficients, by maximum matching."""

import networkx

from rankscope.bounds.sizes import require_positions
from rankscope.errors import BoundError
from rankscope.theorem import LowerBound, Magnitude, Status, Theorem, UpperBound

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
