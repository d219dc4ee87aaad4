"""What a reader of a plan should know before building it, in sentences with numbers."""

from rankscope.auditing.budget import Budget
from rankscope.auditing.law import DepthLaw, LawDepth
from rankscope.auditing.shape import Shape
from rankscope.auditing.wishes import WIDE, Wishes

EMBEDDING_RULE = (
    "This is a rule, not a theorem: for softmax-free self-attention neither our counting bound nor "
    "the published growth of log(separation rank), depth x min(embedding rank, width) with "
    "constants hidden (Wies et al. 2021, arXiv:2105.03928), grows with a width beyond the "
    "embedding rank, and both grow with depth; how deep still trains it does not say"
)
ON_BOUNDS = (
    "The bounds say what softmax-free self-attention of a shape can or cannot represent, not how "
    "well it trains: the fitted law chooses among the alternatives, they do not."
)


def notes_on(
    shape: Shape, budget: Budget, wishes: Wishes, law: DepthLaw, law_depth: LawDepth
) -> tuple[str, ...]:
    """Notes on a planned shape, the weightiest first."""
    notes = (
        _on_embedding(shape, budget, law_depth),
        _on_extrapolation(shape, law, law_depth),
        _on_wishes(shape, wishes, law_depth),
        _on_heads(shape, wishes),
        ON_BOUNDS,
    )
    return tuple(note for note in notes if note is not None)


def _on_embedding(shape: Shape, budget: Budget, law_depth: LawDepth) -> str | None:
    limit, law_width = budget.embedding.limit, budget.width(max(1, round(law_depth.real)))
    if limit is None or round(law_width) <= limit:
        return None
    return (
        f"The token vectors have rank {limit:,} at most, but at the law's depth the width would be "
        f"{law_width:,.0f}; planned are {shape.depth:,} blocks of width {shape.width:,}. "
        f"{EMBEDDING_RULE}. Other ways out: an embedding rank of {law_width:,.0f}, or a largest "
        "depth."
    )


def _on_extrapolation(shape: Shape, law: DepthLaw, law_depth: LawDepth) -> str | None:
    if law.is_fitted_at(law_depth.real) and law.is_fitted_at(shape.depth):
        return None
    return (
        f"Extrapolated: the law was fitted on depths {law.depths[0]} to {law.depths[1]}; it gives "
        f"{law_depth.real:.1f} here, and {shape.depth:,} is planned."
    )


def _on_wishes(shape: Shape, wishes: Wishes, law_depth: LawDepth) -> str | None:
    if wishes.fixed_width is not None:
        return (
            f"Heads x head size fix the width at {shape.width:,}, and the budget the depth at "
            f"{shape.depth:,}; the law gives {law_depth}."
        )
    if wishes.max_depth is not None and wishes.max_depth < round(law_depth.real):
        return f"The largest depth {wishes.max_depth:,} is below the law's {law_depth}."
    return None


def _on_heads(shape: Shape, wishes: Wishes) -> str | None:
    if wishes.heads is None and wishes.head_size is None:
        return (
            f"Heads of {shape.head_size} are a convention (about 64, or 128 from width {WIDE:,} "
            "on), kept together within the width; the law says nothing about heads."
        )
    return f"Widths are multiples of {wishes.step:,}, for the heads and the rounding wished for."
