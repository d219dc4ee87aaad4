"""Bounds on the error of a classifier, each with its theorem and assumptions.

An `order` leaves out constants and logarithms: it shows trends, and promises nothing by itself.
`rigorous` bounds hold as they stand.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import GeneralizationError
from rankscope.generalize.layer_trace import Activations, CPLayer, LayerTrace
from rankscope.generalize.properties import Exact
from rankscope.generalize.rank_search import RankChoice
from rankscope.generalize.sample import margin_loss, require_margin
from rankscope.robust.graph import sample_shape
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


# --- Spectral norms, which look at weights only ---------------------------------------------------


SPECTRAL = Theorem(
    "Bartlett, Foster & Telgarsky (2017)",
    "Thm 1.1",
    "1706.08498",
    (
        "samples are drawn independently from one distribution",
        "order only: constants and logarithms are left out",
        "the network is a chain",
        "reference matrices are zero",
        "a convolution counts as its matrix",
    ),
    Status.RECALLED,
)


def require_chain(trace: LayerTrace, *, who: str) -> None:
    """Refuse networks in which a value is used twice, or several are put together.

    Raises:
        UnsupportedModuleError: with the name of the first operation that is not in a chain.
    """
    before = trace.graph.input
    for node in trace.graph.nodes:
        if node.inputs != (before,):
            raise node.refusal(
                f"{who} is proved for chains, and here values branch or meet, as at a residual "
                "connection"
            )
        before = node.output


def spectral_order(
    trace: LayerTrace, activations: Activations, margin: float
) -> GeneralizationBound:
    r"""Norms of all layers, without constants.

    .. math:: \hat L_\gamma(f) + \frac{\lVert X \rVert_F}{\gamma m} \prod_i \rho_i s_i
              \Big( \sum_i (b_i / s_i)^{2/3} \Big)^{3/2}

    with spectral norms s, the sums b of the norms of rows, and Lipschitz constants ρ of what lies
    between layers. Of convolutions every place of the output has the rows of the kernel.

    Raises:
        UnsupportedModuleError: if the network is no chain.
        GeneralizationError: if the margin is not positive.

    Reference:
        Bartlett, Foster & Telgarsky (2017), Thm 1.1 (as recalled), arXiv:1706.08498.
    """
    require_chain(trace, who="the spectral-norm bound")
    norms = [Exact().of(layer).factor(layer.rank) for layer in trace.layers]
    rows = [_row_norms(layer) for layer in trace.layers]
    stretched = math.prod(norms) * math.prod(growth for (growth,) in trace.growths.values())
    # A layer of norm zero makes the product zero, whatever the sum is.
    ratios = sum((row / norm) ** (2 / 3) for row, norm in zip(rows, norms, strict=True) if norm > 0)
    first = activations.inputs[:, 0]
    length = float(torch.linalg.vector_norm(first))
    complexity = length * stretched * ratios**1.5 / (margin * len(first)) if margin > 0 else 0.0
    constants = (("product of norms", stretched), ("norm of the sample", length))
    return order_bound("spectral-order", SPECTRAL, activations, margin, constants, complexity)


def _row_norms(layer: CPLayer) -> float:
    places = math.prod(sample_shape(layer.output)[1:]) if layer.torus is not None else 1
    weight = layer.components.to_dense().flatten(1)
    return places * float(torch.linalg.vector_norm(weight, dim=1).sum())


# --- Empirical Rademacher complexity of a training procedure --------------------------------------


Fit = Callable[[Tensor], Tensor]

RADEMACHER = Theorem(
    "Bartlett & Mendelson (2002)",
    "Thm 8, in the form of Mohri, Rostamizadeh & Talwalkar (2018), Thm 3.3",
    None,
    (
        "samples are drawn independently from one distribution",
        "the complexity was found by training, so that the true bound is this or larger",
    ),
)


@dataclass(frozen=True)
class RademacherComplexity:
    """Empirical Rademacher complexity of the 0-1 losses of a class of classifiers.

    Args:
        value: mean over draws of (1/m) Σ σ 1[wrong], from below, as training found it.
        maximum: what no class exceeds on the signs drawn.
        draws: of each draw.
    """

    value: float
    maximum: float
    draws: tuple[float, ...]


def measure_rademacher(
    fit: Fit, labels: Tensor, num_classes: int, *, num_draws: int = 1, seed: int = 0
) -> RademacherComplexity:
    r"""Train against random signs: right where the sign is -1, wrong where it is +1.

    .. math:: \hat{\mathfrak R}_S = \mathbb E_\sigma \sup_f
              \frac 1 m \sum_i \sigma_i 1[f(x_i) \ne y_i]

    For each draw, `fit` gets a target for every sample: its own label where σ = -1, and a random
    other one where σ = +1. A network that fits them all reaches the maximum, the share of +1.

    Args:
        fit: takes targets (samples), trains a network anew on the sample's inputs with them, and
            gives the classes that it then predicts, (samples).
        labels: the true ones.
        num_classes: how many there are.
        num_draws: of signs.
        seed: of the signs and the other labels.

    Raises:
        GeneralizationError: if labels do not fit, there is no draw, or predictions have another
            shape.

    Reference:
        Bartlett & Mendelson (2002), Sec. 2; Zhang et al. (2017), Sec. 2.2, arXiv:1611.03530.
    """
    is_fitting = labels.ndim == 1 and len(labels) > 0 and num_classes >= 2 and num_draws >= 1
    if not is_fitting or int(labels.min()) < 0 or int(labels.max()) >= num_classes:
        raise GeneralizationError(
            f"measure_rademacher: wanted labels 0..{num_classes - 1} of at least 2 classes and at "
            f"least 1 draw, got labels of shape {tuple(labels.shape)} and {num_draws} draws."
        )
    generator = torch.Generator().manual_seed(seed)
    complexities, most = [], []
    for _ in range(num_draws):
        is_wrong = torch.rand(len(labels), generator=generator) < 0.5
        others = torch.randint(1, num_classes, labels.shape, generator=generator)
        targets = torch.where(is_wrong, (labels + others) % num_classes, labels)
        predictions = fit(targets)
        if predictions.shape != labels.shape:
            raise GeneralizationError(
                f"measure_rademacher: fit must give {len(labels)} classes, got shape "
                f"{tuple(predictions.shape)}."
            )
        signs = torch.where(is_wrong, 1.0, -1.0)
        complexities.append(float((signs * (predictions != labels)).double().mean()))
        most.append(float(is_wrong.double().mean()))
    # The class that never errs gives 0, and so does one that errs always, on average.
    return RademacherComplexity(
        max(0.0, sum(complexities) / num_draws), sum(most) / num_draws, tuple(complexities)
    )


def rademacher_bound(
    complexity: RademacherComplexity, empirical: float, size: int, *, chance: float = 0.05
) -> GeneralizationBound:
    r"""The bound that the measured complexity gives.

    .. math:: L_0(f) \le \hat L_0(f) + 2 \hat{\mathfrak R}_S + 3 \sqrt{\ln (2 / \delta) / 2 m}

    Args:
        complexity: measured on the sample.
        empirical: the error of f on the sample.
        size: of the sample, m.
        chance: δ.

    Raises:
        GeneralizationError: if an error or a chance is no probability, or there is no sample.

    Reference:
        Bartlett & Mendelson (2002), Thm 8.
    """
    if not (0 <= empirical <= 1 and 0 < chance < 1 and size >= 1):
        raise GeneralizationError(
            f"rademacher_bound: wanted an error in 0..1, a chance between 0 and 1 and at least 1 "
            f"sample, got {empirical}, {chance} and {size}."
        )
    value = empirical + 2 * complexity.value + 3 * math.sqrt(math.log(2 / chance) / (2 * size))
    constants = (
        ("complexity", complexity.value),
        ("largest complexity", complexity.maximum),
        ("samples", float(size)),
        ("chance", chance),
    )
    # Training finds the supremum from below, so that the number is no proof unless it is vacuous.
    return GeneralizationBound(
        "rademacher", value, empirical, RADEMACHER, is_rigorous=False, constants=constants
    )
