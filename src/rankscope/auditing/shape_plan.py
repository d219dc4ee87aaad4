"""Depth, width and heads for a budget of parameters, with the alternatives around them."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from rankscope.auditing.configuration import Configuration, Shape
from rankscope.auditing.depth_width_law import (
    LEVINE,
    SQUARES_PER_BLOCK,
    Budget,
    ComparedModel,
    DepthLaw,
    Embedding,
    LawDepth,
    Number,
    solve_growing,
)
from rankscope.display import Table, counted, fragment
from rankscope.errors import PlanError
from rankscope.rank.bounds.sizes import DEEPEST

# --- What a planned shape should look like, beside its budget -------------------------------------


# A convention and no theorem: the GPT-3 family has heads of 64, and of 128 from its 1.3e9 model on.
HEAD_SIZE = 64
WIDE_HEAD_SIZE = 128
WIDE = 2048


@dataclass(frozen=True)
class ShapeConstraints:
    """Limits on a planned shape, and what its width is rounded to.

    Args:
        heads: attention heads; the width becomes a multiple of them.
        head_size: size of a head; the width becomes a multiple of it, or `heads` x `head_size`.
        max_depth: the most blocks.
        multiple_of: what the width should be a multiple of, such as 64 for hardware; None for whole
            heads of the usual size, 1 for the very width of the law.
    """

    heads: int | None = None
    head_size: int | None = None
    max_depth: int | None = None
    multiple_of: int | None = None

    def __post_init__(self) -> None:
        for name in ("heads", "head_size", "max_depth", "multiple_of"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise PlanError(f"plan: {name.replace('_', ' ')} must be at least 1, got {size}.")
        width = self.fixed_width
        if width is not None and width % (self.multiple_of or 1):
            raise PlanError(
                f"plan: {self.heads} heads of size {self.head_size} fix the width at {width:,}, "
                f"which is no multiple of {self.multiple_of}; leave one of the three out."
            )

    @property
    def fixed_width(self) -> int | None:
        """Heads x head size, if both are given: more or less than the width is never planned."""
        if self.heads is None or self.head_size is None:
            return None
        return self.heads * self.head_size

    @property
    def step(self) -> int:
        """Every planned width is a multiple of this."""
        return math.lcm(self.multiple_of or 1, self.head_size or self.heads or 1)

    def unit(self, width: float) -> int:
        """What widths about this one are multiples of: as asked for, or whole heads."""
        asked = (self.heads, self.head_size, self.multiple_of)
        is_free = asked == (None, None, None) and width >= HEAD_SIZE
        return _usual_head(width) if is_free else self.step

    def rounded(self, width: float) -> int:
        """The nearest width that meets the constraints.

        Raises:
            PlanError: if even the smallest one is too wide.
        """
        if round(width) < self.step:
            raise PlanError(
                f"plan: the budget affords a width of {width:,.1f}, but heads and rounding ask for "
                f"multiples of {self.step:,}; ask for a divisor of at most {round(width):,}, or "
                "give a larger budget."
            )
        unit = self.unit(width)
        return unit * round(width / unit)

    def heads_at(self, width: int) -> tuple[int, int]:
        """Heads and their size: the width is their product, if a size near the usual divides it.

        Example:
            >>> (
            ...     ShapeConstraints().heads_at(768),
            ...     ShapeConstraints(heads=8).heads_at(768),
            ...     ShapeConstraints(multiple_of=100).heads_at(1300),
            ... )
            ((12, 64), (8, 96), (20, 65))
        """
        if self.head_size is not None:
            return width // self.head_size, self.head_size
        if self.heads is not None:
            return self.heads, width // self.heads
        usual = _usual_head(width)
        near = [size for size in range(usual // 2, 2 * usual + 1) if width % size == 0]
        if near:
            size = min(near, key=lambda size: abs(size - usual))
            return width // size, size
        heads = max(1, round(width / usual))
        return heads, width // heads


def _usual_head(width: float) -> int:
    return WIDE_HEAD_SIZE if width >= WIDE else HEAD_SIZE


# --- What a reader of a plan should know before building it, in sentences with numbers ------------


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
    shape: Shape, budget: Budget, constraints: ShapeConstraints, law: DepthLaw, law_depth: LawDepth
) -> tuple[str, ...]:
    """Notes on a planned shape, the weightiest first."""
    notes = (
        _on_embedding(shape, budget, law_depth),
        _on_extrapolation(shape, law, law_depth),
        _on_constraints(shape, constraints, law_depth),
        _on_heads(shape, constraints),
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


def _on_constraints(shape: Shape, constraints: ShapeConstraints, law_depth: LawDepth) -> str | None:
    if constraints.fixed_width is not None:
        return (
            f"Heads x head size fix the width at {shape.width:,}, and the budget the depth at "
            f"{shape.depth:,}; the law gives {law_depth}."
        )
    if constraints.max_depth is not None and constraints.max_depth < round(law_depth.real):
        return f"The largest depth {constraints.max_depth:,} is below the law's {law_depth}."
    return None


def _on_heads(shape: Shape, constraints: ShapeConstraints) -> str | None:
    if constraints.heads is None and constraints.head_size is None:
        return (
            f"Heads of {shape.head_size} are a convention (64, or 128 from width {WIDE:,} on), and "
            "widths are whole heads; the law says nothing about heads."
        )
    return (
        f"Widths are multiples of {constraints.step:,}, for the heads and the rounding asked for."
    )


# Depths around the planned one that are shown, as shares of it.
AROUND = (1 / 2, 2 / 3, 4 / 5, 9 / 10, 11 / 10, 5 / 4, 3 / 2, 2)
# So that rounding of float64 does not add a block to a depth that fits exactly.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Alternative:
    """Another shape for the same budget.

    Args:
        shape: its sizes.
        is_planned: whether this is the planned one.
        is_within_fit: whether the law gives this depth within one standard error.
    """

    shape: Shape
    is_planned: bool
    is_within_fit: bool

    @property
    def parameters(self) -> int:
        """12 x depth x width²."""
        return SQUARES_PER_BLOCK * self.shape.depth * self.shape.width**2

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            **asdict(self.shape),
            "parameters": self.parameters,
            "regime": str(self.shape.regime),
            "is_planned": self.is_planned,
            "is_within_fit": self.is_within_fit,
            **self.shape.bounds_to_dict(),
        }


@dataclass(frozen=True)
class Plan:
    """A shape for a budget, why, and what else there is.

    Args:
        budget: what may be spent.
        constraints: what the shape must look like.
        shape: what is planned.
        law: the fitted law that chose the depth.
        law_depth: what the law gives the budget, before rounding, constraints and embedding.
        shapes_within_fit: what would be planned with both parameters of the fit one standard
            error down, and up.
        alternatives: shapes for the same budget, by depth; the planned one is among them.
        compared: existing models.
    """

    budget: Budget
    constraints: ShapeConstraints
    shape: Shape
    law: DepthLaw
    law_depth: LawDepth
    shapes_within_fit: tuple[Shape, Shape]
    alternatives: tuple[Alternative, ...]
    compared: tuple[ComparedModel, ...] = ()

    @property
    def depth(self) -> int:
        """Planned blocks."""
        return self.shape.depth

    @property
    def width(self) -> int:
        """Planned size of a token vector."""
        return self.shape.width

    @property
    def parameters(self) -> int:
        """12 x depth x width², without embeddings."""
        return SQUARES_PER_BLOCK * self.depth * self.width**2

    @property
    def is_extrapolated(self) -> bool:
        """Whether the law or the plan is deeper or shallower than what the law was fitted on."""
        return not (
            self.law.is_fitted_at(self.law_depth.real) and self.law.is_fitted_at(self.depth)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know before building it."""
        return notes_on(self.shape, self.budget, self.constraints, self.law, self.law_depth)

    def __repr__(self) -> str:
        return (
            f"<Plan: depth {self.depth:,}, width {self.width:,}, {self.shape.heads:,} heads of "
            f"{self.shape.head_size:,}, {counted(self.parameters, 'parameter')} in blocks>"
        )

    def _repr_html_(self) -> str:
        rows = [
            (
                "planned" if one.is_planned else "within the fit" if one.is_within_fit else "",
                f"{one.shape.depth:,}",
                f"{one.shape.width:,}",
                f"{one.shape.heads:,} of {one.shape.head_size:,}",
                f"{one.parameters:,}",
            )
            for one in self.alternatives
        ]
        head = ("", "depth", "width", "heads", "parameters in blocks")
        return fragment(repr(self)[1:-1], self.notes, Table(head, rows, numbers=(1, 2, 3, 4)))

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        embedding, shape = self.budget.embedding, self.shape
        theorems = {bound.theorem for bound in (shape.count, shape.lower) if bound is not None}
        return {
            "depth": self.depth,
            "width": self.width,
            "heads": shape.heads,
            "head_size": shape.head_size,
            "parameters": self.parameters,
            "embedding": {
                "vocabulary": embedding.vocabulary,
                "rank": shape.embedding_rank,
                "is_factorized": embedding.is_factorized_at(self.width),
                "parameters": embedding.parameters_at(self.width),
            },
            "budget": {"parameters": self.budget.parameters, "is_total": self.budget.is_total},
            "depth_real": self.law_depth.real,
            "depth_low": self.law_depth.low,
            "depth_high": self.law_depth.high,
            "law": self.law.to_dict(),
            "is_extrapolated": self.is_extrapolated,
            "within_fit": [
                {"sigmas": sigmas, "depth": edge.depth, "width": edge.width}
                for sigmas, edge in zip((-1, 1), self.shapes_within_fit, strict=True)
            ],
            "alternatives": [alternative.to_dict() for alternative in self.alternatives],
            "compared": [model.to_dict() for model in self.compared],
            "theorems": [theorem.to_dict() for theorem in sorted(theorems, key=str)],
            "notes": list(self.notes),
        }


def plan(  # noqa: PLR0913 - the options of the command, all by name
    parameters: Number | None = None,
    *,
    total_parameters: Number | None = None,
    vocabulary: int | None = None,
    embedding_rank: int | None = None,
    heads: int | None = None,
    head_size: int | None = None,
    max_depth: int | None = None,
    multiple_of: int | None = None,
    compare: Mapping[str, Configuration] = MappingProxyType({}),
    law: DepthLaw = LEVINE,
) -> Plan:
    r"""Choose depth, width and heads for a budget.

    The depth is the law's, rounded; the width is what the budget affords at that depth:

    .. math:: 12 L e^{2a + 2bL} = N, \qquad d = \sqrt{N / (12 L)}

    An embedding rank r below that width changes it by a rule: deepen until the width is r, or the
    largest depth is reached.

    Args:
        parameters: the budget without embeddings, 12 x depth x width².
        total_parameters: the budget with the embedding (the head tied to it); needs `vocabulary`.
        vocabulary: number of tokens.
        embedding_rank: largest rank of the embedding.
        heads: attention heads; the width becomes a multiple of them.
        head_size: size of a head; with `heads` it fixes the width.
        max_depth: the most blocks.
        multiple_of: what the width should be a multiple of; None for whole heads.
        compare: models to put beside it, by name.
        law: the depth-to-width law.

    Example:
        >>> configuration = plan(12 * 96 * 12288**2)
        >>> configuration.depth, configuration.width
        (80, 13440)

    Raises:
        PlanError: if the budget is too small, or no shape meets all constraints.

    Reference:
        Levine et al. (2020), arXiv:2006.12467; Wies et al. (2021), arXiv:2105.03928.
    """
    budget = Budget.of(parameters, total_parameters, Embedding(vocabulary, embedding_rank))
    constraints = ShapeConstraints(heads, head_size, max_depth, multiple_of)
    low, real, high = (_law_depth(budget, law.shifted(sigmas)) for sigmas in (1.0, 0.0, -1.0))
    law_depth, shape = LawDepth(real, low, high), _plan_shape(budget, constraints, real)
    return Plan(
        budget=budget,
        constraints=constraints,
        shape=shape,
        law=law,
        law_depth=law_depth,
        shapes_within_fit=(
            _plan_shape(budget, constraints, high),
            _plan_shape(budget, constraints, low),
        ),
        alternatives=_alternatives(budget, constraints, law_depth, shape),
        compared=tuple(
            ComparedModel.of(name, configuration, law) for name, configuration in compare.items()
        ),
    )


def _law_depth(budget: Budget, law: DepthLaw) -> float:
    return solve_growing(lambda depth: budget.size(depth, law.width(depth)), budget.parameters)


def _plan_shape(budget: Budget, constraints: ShapeConstraints, law_depth: float) -> Shape:
    if constraints.fixed_width is not None:
        return _of_fixed_width(budget, constraints, constraints.fixed_width)
    depth = max(1, round(law_depth))
    limit = budget.embedding.limit
    if limit is not None and round(budget.width(depth)) > limit:
        unit = constraints.unit(limit)
        narrow = max(limit // unit * unit, 1)
        depth = max(depth, math.ceil(budget.depth(narrow) - ROUNDING))
    depth = depth if constraints.max_depth is None else min(depth, constraints.max_depth)
    if depth > DEEPEST:
        raise PlanError(
            f"plan: an embedding rank of {limit} asks for {depth:,} blocks, more than {DEEPEST:,}; "
            "give a larger embedding rank, or the largest depth."
        )
    return _shape(budget, constraints, depth, constraints.rounded(budget.width(depth)))


def _of_fixed_width(budget: Budget, constraints: ShapeConstraints, width: int) -> Shape:
    depth, most = round(budget.depth(width)), constraints.max_depth or DEEPEST
    if not 1 <= depth <= most:
        raise PlanError(
            f"plan: {constraints.heads} heads of size {constraints.head_size} fix the width at "
            f"{width:,}, for which the budget affords {budget.depth(width):,.2f} blocks; wanted 1 "
            f"to {most:,}. Leave out heads or head size."
        )
    return _shape(budget, constraints, depth, width)


def _shape(budget: Budget, constraints: ShapeConstraints, depth: int, width: int) -> Shape:
    return Shape(depth, width, *constraints.heads_at(width), budget.embedding.rank_at(width))


def _alternatives(
    budget: Budget, constraints: ShapeConstraints, law_depth: LawDepth, planned: Shape
) -> tuple[Alternative, ...]:
    """The planned shape, depths around it, and those that the law gives."""
    depths = {round(planned.depth * share) for share in AROUND}
    depths |= {round(depth) for depth in (law_depth.low, law_depth.real, law_depth.high)}
    most = min(constraints.max_depth or DEEPEST, DEEPEST)
    shapes = [planned]
    for depth in depths - {planned.depth}:
        width = budget.width(depth) if 1 <= depth <= most else 0.0
        if round(width) >= constraints.step:
            shapes.append(_shape(budget, constraints, depth, constraints.rounded(width)))
    return tuple(
        Alternative(shape, shape == planned, law_depth.admits(shape.depth))
        for shape in sorted(shapes, key=lambda shape: shape.depth)
    )
