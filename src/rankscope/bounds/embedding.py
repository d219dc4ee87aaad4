"""The embedding-rank bottleneck: what is published, as growth rates only."""

from dataclasses import dataclass

from rankscope.bounds.sizes import AttentionSizes
from rankscope.theorem import Status, Theorem

EMBEDDING = Theorem(
    "Wies et al. (2021)",
    "Thm 7.3",
    "2105.03928",
    ("softmax-free self-attention", "token vectors x = M w with M of the embedding rank"),
    Status.DISPUTED,
)
EMBEDDING_LOWER = Theorem(
    "Wies et al. (2021)",
    "Thm 7.3",
    "2105.03928",
    (*EMBEDDING.assumptions, "almost all weights", "depth > log3(width)", "heads < embedding rank"),
)


@dataclass(frozen=True)
class Growth:
    """A published growth rate: constants and logarithms are hidden, so it bounds no number.

    Args:
        symbol: `O~` for at most, `Omega~` for at least.
        rate: what the logarithm of the separation rank grows with.
        theorem: where it comes from.
    """

    symbol: str
    rate: int
    theorem: Theorem

    def __str__(self) -> str:
        return f"log(separation rank) = {self.symbol}({self.rate:,})    [{self.theorem}]"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {"symbol": self.symbol, "rate": self.rate, "theorem": self.theorem.to_dict()}


def embedding_upper_growth(sizes: AttentionSizes) -> Growth:
    r"""The published growth of the upper bound; `counting_upper_bound` is a number instead.

    .. math:: \log \operatorname{sep} = \tilde O(L \min(r, d))

    With at least r tokens on each side our count grows with r(r + 1)/2 in place of min(r, d).

    Example:
        >>> embedding_upper_growth(AttentionSizes(depth=5, width=8, embedding_rank=3)).rate
        15

    Reference:
        Wies et al. (2021), Thm 7.3 as numbered in seed 000, arXiv:2105.03928.
    """
    return Growth("O~", sizes.depth * sizes.rank, EMBEDDING)


def embedding_lower_growth(sizes: AttentionSizes) -> Growth | None:
    r"""The published growth of the lower bound, or None where the theorem does not apply.

    .. math:: \log \operatorname{sep} = \tilde\Omega(L (\min(r, d) - H)), \qquad
              L > \log_3 d,\; H < r

    Example:
        >>> embedding_lower_growth(AttentionSizes(depth=5, width=8, embedding_rank=3)).rate
        10

    Reference:
        Wies et al. (2021), Thm 7.3 as numbered in seed 000, arXiv:2105.03928.
    """
    if int(3**sizes.depth) <= sizes.width or sizes.heads >= sizes.rank:
        return None
    return Growth("Omega~", sizes.depth * (sizes.rank - sizes.heads), EMBEDDING_LOWER)
