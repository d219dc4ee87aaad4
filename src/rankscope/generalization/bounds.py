"""Bounds on the error of a classifier: numbers with what they promise.

An `order` leaves out constants and logarithms: it shows trends, and promises nothing by itself.
`rigorous` bounds hold as they stand.
"""

import math
from dataclasses import dataclass

from torch import nn

from rankscope.generalization.activations import Activations
from rankscope.generalization.rank_search import RankChoice
from rankscope.generalization.sample import margin_loss, require_margin
from rankscope.theorem import Status, Theorem


@dataclass(frozen=True)
class GeneralizationBound:
    """The error on new samples is at most this, with what it was made of.

    Args:
        name: which bound.
        value: the bound; infinite if it says nothing at all.
        empirical: the part of it that was measured on the sample.
        theorem: what it promises, and of which network.
        is_rigorous: whether it holds as it stands; otherwise constants and logarithms are missing.
        constants: the numbers that went into it.
    """

    name: str
    value: float
    empirical: float
    theorem: Theorem
    is_rigorous: bool
    constants: tuple[tuple[str, float], ...]

    @property
    def is_vacuous(self) -> bool:
        """Whether it says no more than that an error is at most 1."""
        return not self.value < 1

    def __str__(self) -> str:
        kind = "error" if self.is_rigorous else "order, constants left out:"
        vacuous = ", vacuous" if self.is_vacuous else ""
        return f"{self.name}: {kind} <= {self.value:.6g}{vacuous}    [{self.theorem}]"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON; what is infinite is None."""
        return {
            "name": self.name,
            "value": self.value if math.isfinite(self.value) else None,
            "vacuous": self.is_vacuous,
            "rigorous": self.is_rigorous,
            "empirical": self.empirical,
            "constants": {
                name: value if math.isfinite(value) else None for name, value in self.constants
            },
            "theorem": self.theorem.to_dict(),
        }


_SAMPLE = "samples are drawn independently from one distribution"
_COMPRESSED = "bounds the compressed network g, not f"
_ORDER = "order only: constants and logarithms are left out"

COMPRESSION = Theorem(
    "Li, Sun, Su, Suzuki & Huang (2020)",
    "main theorem",
    "2001.05070",
    (_SAMPLE, _COMPRESSED, _ORDER, "g is within the margin's tolerance of f on the sample"),
    Status.RECALLED,
)
SLIDES = Theorem(
    "Huang (2021), slides",
    "bound without the width factor s + o + kx ky + 1",
    "2001.05070",
    (_SAMPLE, _COMPRESSED, _ORDER, "drops a factor that is no logarithm"),
    Status.DISPUTED,
)
COUNTING = Theorem(
    "Parameter counting",
    "finite class of all numbers of f",
    None,
    (_SAMPLE, _ORDER),
    Status.PUBLISHED,
)


def compression_order(
    choice: RankChoice, activations: Activations, margin: float
) -> GeneralizationBound:
    r"""The bound from the ranks that layers need, without constants.

    .. math:: \hat L_\gamma(f) + \sqrt{\sum_k \hat R^{(k)} (s + o + k_x k_y + 1) / m}

    A layer whose components hold more numbers than its dense weight counts as dense.

    Args:
        choice: the ranks, at this margin.
        activations: of f on the sample.
        margin: γ, for which g is near enough to f: `Tolerance.threshold` of the margin searched.

    Reference:
        Li, Sun, Su, Suzuki & Huang (2020), main theorem (as recalled), arXiv:2001.05070.
    """
    count = sum(layer.num_parameters for layer in choice.layers)
    return _order("compression-order", COMPRESSION, activations, margin, ("parameters", count))


def slides_order(
    choice: RankChoice, activations: Activations, margin: float
) -> GeneralizationBound:
    r"""The same as on the slides: :math:`\hat L_\gamma(f) + \sqrt{\sum_k \hat R^{(k)} / m}`.

    Reference:
        Li, Sun, Su, Suzuki & Huang (2020), as on slides of 2021, arXiv:2001.05070.
    """
    return _order("slides-order", SLIDES, activations, margin, ("ranks", sum(choice.ranks)))


def parameter_counting(
    model: nn.Module, activations: Activations, margin: float
) -> GeneralizationBound:
    r"""The oldest one: :math:`\hat L_\gamma(f) + \sqrt{q / m}` with all q parameters of f.

    Reference:
        Folklore, from a union bound over a finite class.
    """
    count = sum(weight.numel() for weight in model.parameters())
    return _order("parameter-counting", COUNTING, activations, margin, ("parameters", count))


def _order(
    name: str,
    theorem: Theorem,
    activations: Activations,
    margin: float,
    counted: tuple[str, int],
) -> GeneralizationBound:
    what, count = counted
    size = len(activations.labels)
    return order_bound(
        name, theorem, activations, margin, ((what, float(count)),), math.sqrt(count / size)
    )


def order_bound(
    name: str,
    theorem: Theorem,
    activations: Activations,
    margin: float,
    constants: tuple[tuple[str, float], ...],
    complexity: float,
) -> GeneralizationBound:
    """The margin loss on the sample plus a complexity, without constants.

    Raises:
        GeneralizationError: if the margin is not positive.
    """
    require_margin(margin)
    empirical = margin_loss(activations.outputs, activations.labels, margin)
    size = len(activations.labels)
    common = (("margin", margin), ("samples", float(size)), ("complexity", complexity))
    return GeneralizationBound(
        name,
        empirical + complexity,
        empirical,
        theorem,
        is_rigorous=False,
        constants=(*common, *constants),
    )
