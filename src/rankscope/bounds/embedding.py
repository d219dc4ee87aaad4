"""The embedding-rank bottleneck: what is published, as growth rates only.

Thm 7.3 is that of Wies et al. (2021), arXiv:2105.03928, numbered as in Levine, Wies, Sharir, Cohen
& Shashua (2022), Tensors for deep learning theory, chapter 7 of Tensors for Data Processing.
"""

from dataclasses import dataclass

from rankscope.bounds.sizes import AttentionSizes
from rankscope.theorem import Status, Theorem

EMBEDDING = Theorem(
    "Wies et al. (2021)",
    "Thm 7.3 (2022)",
    "2105.03928",
    ("softmax-free self-attention", "token vectors x = M w with M of the embedding rank"),
    Status.DISPUTED,
)
EMBEDDING_LOWER = Theorem(
    "Wies et al. (2021)",
    "Thm 7.3 (2022)",
    "2105.03928",
    (*EMBEDDING.assumptions, "almost all weights", "depth > log3(width)", "heads < embedding rank"),
)


@dataclass(frozen=True)
class Growth:
    """A published growth rate: constants and logarithms are hidden, so it bounds no number.

    Args:
        symbol: `O~` for at most, `Omega~` for at least.
        formula: what the logarithm of the separation rank grows with, in words.
        rate: the formula at the given sizes, good for comparing sizes only.
        theorem: where it comes from.
    """

    symbol: str
    formula: str
    rate: int
    theorem: Theorem

    def __str__(self) -> str:
        return (
            f"log(separation rank) = {self.symbol}({self.formula}), a growth rate that bounds no "
            f"number    [{self.theorem}]"
        )

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; `bounds_a_number` is always false."""
        return {
            "symbol": self.symbol,
            "formula": self.formula,
            "rate": self.rate,
            "bounds_a_number": False,
            "theorem": self.theorem.to_dict(),
        }


def embedding_upper_growth(sizes: AttentionSizes) -> Growth:
    r"""The published growth of the upper bound; `counting_upper_bound` is a number instead.

    .. math:: \log \operatorname{sep} = \tilde O(L \min(r, d))

    With at least r tokens on each side our count grows with r(r + 1)/2 in place of min(r, d), and
    with many heads so does the rank (`monomial_lower_bound`).

    Example:
        >>> embedding_upper_growth(AttentionSizes(depth=5, width=8, embedding_rank=3)).formula
        'depth * min(embedding rank, width)'

    Reference:
        Wies et al. (2021), arXiv:2105.03928; Thm 7.3 of Levine et al. (2022).
    """
    formula = "depth * min(embedding rank, width)"
    return Growth("O~", formula, sizes.depth * sizes.rank, EMBEDDING)


def embedding_lower_growth(sizes: AttentionSizes) -> Growth | None:
    r"""The published growth of the lower bound, or None where the theorem does not apply.

    .. math:: \log \operatorname{sep} = \tilde\Omega(L (\min(r, d) - H)), \qquad
              L > \log_3 d,\; H < r

    Example:
        >>> embedding_lower_growth(AttentionSizes(depth=1, width=8, embedding_rank=3)) is None
        True

    Reference:
        Wies et al. (2021), arXiv:2105.03928; Thm 7.3 of Levine et al. (2022).
    """
    if int(3**sizes.depth) <= sizes.width or sizes.heads >= sizes.rank:
        return None
    formula = "depth * (min(embedding rank, width) - heads)"
    return Growth("Omega~", formula, sizes.depth * (sizes.rank - sizes.heads), EMBEDDING_LOWER)
