"""Growth rates, which bound no number."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.rank import AttentionSizes, Growth, embedding_lower_growth, embedding_upper_growth
from rankscope.theorem import Bound, Status


@settings(deadline=None)
@given(
    depth=st.integers(1, 6), width=st.integers(1, 40), heads=st.integers(1, 8),
    rank=st.integers(1, 60),
)  # fmt: skip
def test_rates_follow_the_smaller_of_embedding_rank_and_width(
    depth: int, width: int, heads: int, rank: int
) -> None:
    sizes = AttentionSizes(depth, width, heads, embedding_rank=rank)
    smaller = min(rank, width)
    upper = embedding_upper_growth(sizes)
    assert upper is not None
    assert upper.rate == depth * smaller
    lower = embedding_lower_growth(sizes)
    assert (lower is not None) == (3**depth > width and heads < smaller)
    if lower is not None:
        assert lower.rate == depth * (smaller - heads) > 0


def test_a_growth_rate_is_shown_as_a_formula_and_never_as_a_number() -> None:
    sizes = AttentionSizes(5, 8, heads=2, embedding_rank=3)
    upper, lower = embedding_upper_growth(sizes), embedding_lower_growth(sizes)
    assert upper is not None
    assert lower is not None
    assert str(upper).startswith("log(separation rank) = O~(depth * min(embedding rank, width)), ")
    assert str(lower).startswith(
        "log(separation rank) = Omega~(depth * (min(embedding rank, width) - heads)), "
    )
    for growth in (upper, lower):
        assert "a growth rate that bounds no number" in str(growth)
        assert str(growth.rate) not in str(growth).split("[", maxsplit=1)[0]
        assert "arXiv:2105.03928" in str(growth)
        assert not isinstance(growth, Bound)


def test_the_document_says_that_no_number_is_bounded() -> None:
    growth = embedding_upper_growth(AttentionSizes(5, 8, embedding_rank=3))
    assert isinstance(growth, Growth)
    assert json.loads(json.dumps(growth.to_dict())) == {
        "symbol": "O~",
        "formula": "depth * min(embedding rank, width)",
        "rate": 15,
        "bounds_a_number": False,
        "theorem": growth.theorem.to_dict(),
    }
    assert growth.theorem.status is Status.DISPUTED


def test_no_growth_is_given_where_the_theorem_does_not_apply() -> None:
    for sizes in (
        AttentionSizes(5, 8, embedding_rank=3, own_tokens=1, other_tokens=3),
        AttentionSizes(5, 8, embedding_rank=3, degree=5),
    ):
        assert embedding_upper_growth(sizes) is None
        assert embedding_lower_growth(sizes) is None
