"""The depth-to-width law that Levine et al. (2020) fitted: how deep for so many parameters.

A law, not a theorem: a straight line through transition points of trained language models.
"""

import math
from dataclasses import dataclass, replace

from rankscope.auditing.bisection import Number, solve_growing
from rankscope.auditing.configuration import Configuration
from rankscope.errors import PlanError

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
        """Half of the interval: the most it can be (to first order), however a and b correlate."""
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
