"""Which degree of a layer is best for a budget of weight matrices."""

import math
from dataclasses import dataclass

from rankscope.bounds.sizes import require_at_least

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
