"""The depth-to-width law that Levine et al. (2020) fitted: how deep for so many parameters.

A law, not a theorem: a straight line through transition points of trained language models.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from rankscope.auditing.configuration import Configuration, Shape
from rankscope.errors import PlanError

# --- Where a growing function reaches a value -----------------------------------------------------


# Counts are integers, budgets and roots are not.
Number = int | float


def solve_growing(function: Callable[[float], Number], target: Number) -> float:
    """The largest positive number at which a growing function is at most `target`.

    Args:
        function: grows on the positive numbers, starts at or below `target` and passes it.
        target: the value wanted.

    Example:
        >>> round(solve_growing(lambda side: side * side, 144.0), 9)
        12.0
    """
    low, high = 0.0, 1.0
    while function(high) <= target:
        low, high = high, 2 * high
    middle = (low + high) / 2
    while low < middle < high:
        low, high = (middle, high) if function(middle) <= target else (low, middle)
        middle = (low + high) / 2
    return low


# Four maps of attention and two feed-forward maps of four times the width.
SQUARES_PER_BLOCK = 12


@dataclass(frozen=True)
class LawDepth:
    """The law's depth for a number of parameters.

    Args:
        real: at the centre of the fit.
        low: with both parameters of the fit one standard error up.
        high: with both one standard error down.
    """

    real: float
    low: float
    high: float

    @property
    def standard_deviation(self) -> float:
        """First-order upper bound of the standard deviation, for any correlation of a and b."""
        return (self.high - self.low) / 2

    def admits(self, depth: int) -> bool:
        """Whether the law, rounded to whole blocks, gives a depth within its uncertainty."""
        return round(self.low) <= depth <= round(self.high)

    def __str__(self) -> str:
        return f"{self.real:.1f} ({self.low:.1f} to {self.high:.1f})"


@dataclass(frozen=True)
class DepthLaw:
    r"""The width at which deepening stops to pay, for each depth.

    .. math:: \ln d = a + b L, \qquad N(L) = 12 L d^2 = 12 L e^{2a + 2bL}

    with d = width, L = depth and N = parameters without embeddings. A model that is shallower than
    the root of N(L) = N should be deepened, a deeper one widened.

    Args:
        intercept: a.
        intercept_error: its standard error.
        slope: b.
        slope_error: its standard error.
        depths: smallest and largest depth of the models it was fitted on.
        data: what those models were.
        reference: where it comes from, and how far that was checked.

    Example:
        >>> round(LEVINE.width(80.0)), round(LEVINE.best_depth(12.0 * 96 * 12288**2).real)
        (13082, 80)

    Reference:
        Levine et al. (2020), arXiv:2006.12467.
    """

    intercept: float
    intercept_error: float
    slope: float
    slope_error: float
    depths: tuple[int, int]
    data: str
    reference: str

    def width(self, depth: Number) -> float:
        """The width that the law gives a depth."""
        return math.exp(self.intercept + self.slope * depth)

    def depth_for_width(self, width: Number) -> float:
        """The depth that the law gives a width; negative for widths below exp(a)."""
        return (math.log(width) - self.intercept) / self.slope

    def parameters(self, depth: Number) -> float:
        """Parameters without embeddings, N(L), of the law's model of a depth."""
        return SQUARES_PER_BLOCK * depth * self.width(depth) ** 2

    def best_depth(self, parameters: Number) -> LawDepth:
        """The depth L at which N(L) = `parameters`, and how far it moves with the fit.

        Raises:
            PlanError: if there are no parameters.
        """
        if not (math.isfinite(parameters) and parameters > 0):
            raise PlanError(
                f"DepthLaw: wanted a positive number of parameters, got {parameters:,}."
            )
        low, real, high = (
            solve_growing(self.shifted(sigmas).parameters, parameters)
            for sigmas in (1.0, 0.0, -1.0)
        )
        return LawDepth(real, low, high)

    def shifted(self, sigmas: float) -> "DepthLaw":
        """The law with both parameters moved by so many standard errors."""
        return replace(
            self,
            intercept=self.intercept + sigmas * self.intercept_error,
            slope=self.slope + sigmas * self.slope_error,
        )

    def is_fitted_at(self, depth: Number) -> bool:
        """Whether a depth lies between those of the models it was fitted on."""
        return self.depths[0] <= depth <= self.depths[1]

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "formula": "ln(width) = a + b * depth",
            "a": self.intercept,
            "a_error": self.intercept_error,
            "b": self.slope,
            "b_error": self.slope_error,
            "fitted_depths": list(self.depths),
            "fitted_on": self.data,
            "reference": self.reference,
        }


def parameters_in_blocks(configuration: Configuration) -> int:
    """The parameters that the law counts: all that is neither embedding nor head nor pooler."""
    counted = configuration.parameters
    return counted.attention + counted.feed_forward + counted.normalization


LEVINE = DepthLaw(
    intercept=5.039,
    intercept_error=0.030,
    slope=0.0555,
    slope_error=0.0013,
    depths=(6, 48),
    data="decoder-only language models of depths 6 to 48, trained on English text with a "
    "vocabulary of about 2,000 tokens (data and vocabulary as recalled)",
    reference="Levine et al. (2020), arXiv:2006.12467, fitted law (standard errors as recalled)",
)


# --- A budget of parameters: which width a depth can afford, and which depth a width --------------


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


# --- Existing models beside the law ---------------------------------------------------------------


@dataclass(frozen=True)
class ComparedModel:
    """A model, and the depth that the law gives as many parameters.

    Args:
        name: how it is called.
        configuration: its shape.
        law_depth: the law's depth for the parameters in its blocks.
    """

    name: str
    configuration: Configuration
    law_depth: LawDepth

    @classmethod
    def of(cls, name: str, configuration: Configuration, law: DepthLaw) -> "ComparedModel":
        """Put a model beside the law."""
        return cls(name, configuration, law.best_depth(parameters_in_blocks(configuration)))

    @property
    def shape(self) -> Shape:
        """Its sizes."""
        configuration = self.configuration
        return Shape(
            configuration.depth,
            configuration.width,
            configuration.heads,
            configuration.head_size,
            configuration.embedding_rank,
        )

    @property
    def parameters(self) -> int:
        """Number of parameters in its blocks, which the law counts."""
        return parameters_in_blocks(self.configuration)

    @property
    def verdict(self) -> str:
        """Where its depth lies against the law's, within the uncertainty of the fit."""
        depth = self.configuration.depth
        if self.law_depth.admits(depth):
            return "as the law"
        return f"{'deeper' if depth > self.law_depth.real else 'shallower'} than the law"

    @property
    def remark(self) -> str | None:
        """How the model differs from those that the law was fitted on."""
        shared = self._on_shared_keys()
        remarks = [one for one in (self._on_parameters(), shared) if one is not None]
        return "; ".join(remarks) or None

    def _on_shared_keys(self) -> str | None:
        """What shared or latent keys and values give away (docs/proofs.md, section 24)."""
        share = self.configuration.visible_share
        if not self.configuration.has_shared_keys or share >= 1:
            return None
        return f"keys and values see {100 * share:.3g} % of the Gram matrix"

    def _on_parameters(self) -> str | None:
        configuration = self.configuration
        if configuration.encoder_depth and configuration.decoder_depth:
            return (
                f"parameters of encoder ({configuration.encoder_depth}) and decoder "
                f"({configuration.decoder_depth}) together"
            )
        if configuration.family == "albert":
            return "all blocks share their parameters, counted once"
        return (
            f"all {configuration.num_experts} experts counted"
            if configuration.num_experts > 1
            else None
        )

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        shape, law_depth = self.shape, self.law_depth
        return {
            "name": self.name,
            "family": self.configuration.family,
            "depth": shape.depth,
            "width": shape.width,
            "heads": shape.heads,
            "head_size": shape.head_size,
            "embedding_rank": shape.embedding_rank,
            "parameters": self.parameters,
            "total_parameters": self.configuration.parameters.total,
            "depth_real": law_depth.real,
            "depth_low": law_depth.low,
            "depth_high": law_depth.high,
            "verdict": self.verdict,
            "remark": self.remark,
            "regime": str(shape.regime),
            **shape.bounds_to_dict(),
        }
