"""A budget of parameters: which width a depth can afford, and which depth a width."""

import math
from dataclasses import dataclass

from rankscope.auditing.bisection import Number, solve_growing
from rankscope.auditing.law import SQUARES_PER_BLOCK
from rankscope.errors import PlanError

SMALLEST_WIDTH = 64
SMALLEST_BLOCK = SQUARES_PER_BLOCK * SMALLEST_WIDTH**2
# A million times the largest models; beyond this nothing printed would mean anything.
LARGEST_BUDGET = 1e18


@dataclass(frozen=True)
class Embedding:
    """How tokens become vectors.

    Args:
        vocabulary: number of tokens, or None if unknown.
        rank: largest rank that the embedding may have, or None for no limit.
    """

    vocabulary: int | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        for name, size in (("vocabulary", self.vocabulary), ("embedding rank", self.rank)):
            if size is not None and size < 1:
                raise PlanError(f"plan: the {name} must be at least 1, got {size}.")

    @property
    def limit(self) -> int | None:
        """The largest rank that the token vectors can have at any width; None if unknown."""
        known = [size for size in (self.vocabulary, self.rank) if size is not None]
        return min(known, default=None)

    def rank_at(self, width: int) -> int:
        """The largest rank of the token vectors at a width."""
        return width if self.limit is None else min(width, self.limit)

    def is_factorized_at(self, width: Number) -> bool:
        """Whether the rank is held below what vocabulary and width would give."""
        return self.rank is not None and self.rank < min(width, self.vocabulary or math.inf)

    def parameters_at(self, width: Number) -> Number | None:
        """Entries of the table (or of its two factors), None if the vocabulary is unknown.

        Example:
            >>> Embedding(30_000).parameters_at(768), Embedding(30_000, 128).parameters_at(768)
            (23040000, 3938304)
        """
        if self.vocabulary is None:
            return None
        if self.rank is not None and self.is_factorized_at(width):
            return self.rank * (self.vocabulary + width)
        return self.vocabulary * width


@dataclass(frozen=True)
class Budget:
    """How many parameters a model may have.

    Args:
        parameters: how many.
        embedding: what the embedding costs.
        is_total: whether the embedding is paid from it (once: the head is tied to it).
    """

    parameters: float
    embedding: Embedding
    is_total: bool = False

    @classmethod
    def of(
        cls, parameters: Number | None, total_parameters: Number | None, embedding: Embedding
    ) -> "Budget":
        """The one of the two budgets that is given.

        Raises:
            PlanError: if not exactly one is given, the vocabulary is missing, or it is no number
                that pays for one block of width 64.
        """
        given = [number for number in (parameters, total_parameters) if number is not None]
        if len(given) != 1:
            raise PlanError(
                "plan: give either parameters (without embeddings) or total parameters, "
                f"got {len(given)} of the two."
            )
        if total_parameters is not None and embedding.vocabulary is None:
            raise PlanError(
                f"plan: a total of {total_parameters:,.6g} parameters includes the embedding; "
                "give the vocabulary too, or a budget without embeddings."
            )
        budget = cls(float(given[0]), embedding, is_total=total_parameters is not None)
        budget._require_a_block()
        return budget

    def _require_a_block(self) -> None:
        if not 0 < self.parameters <= LARGEST_BUDGET:
            raise PlanError(
                f"plan: wanted a number of parameters from {SMALLEST_BLOCK:,} to "
                f"{LARGEST_BUDGET:.0e}, got {self.parameters:,.6g}."
            )
        least = self.size(1, SMALLEST_WIDTH)
        if self.parameters < least:
            table = f"{self._embedding(SMALLEST_WIDTH):,.0f} of the embedding and "
            raise PlanError(
                f"plan: {self.parameters:,.0f} parameters are fewer than {least:,.0f}: "
                f"{table if self.is_total else ''}{SMALLEST_BLOCK:,} of one block, at width "
                f"{SMALLEST_WIDTH}. Give at least {least:,.0f}"
                f"{', or a smaller vocabulary' if self.is_total else ''}."
            )

    def size(self, depth: Number, width: Number) -> Number:
        """What a shape costs of this budget: 12 x depth x width², with the embedding if paid."""
        return SQUARES_PER_BLOCK * depth * width**2 + self._embedding(width)

    def width(self, depth: Number) -> float:
        """The width that a depth can afford."""
        return solve_growing(lambda width: self.size(depth, width), self.parameters)

    def depth(self, width: Number) -> float:
        """The depth that a width can afford."""
        return (self.parameters - self._embedding(width)) / (SQUARES_PER_BLOCK * width**2)

    def _embedding(self, width: Number) -> Number:
        return (self.embedding.parameters_at(width) or 0.0) if self.is_total else 0.0
