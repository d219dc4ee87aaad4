"""How well a way to train fits noise: the empirical Rademacher complexity, measured."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.errors import GeneralizationError
from rankscope.generalization.bounds import GeneralizationBound
from rankscope.theorem import Theorem

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
    """Of the 0-1 losses of a class of classifiers on a sample.

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
    found, most = [], []
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
        found.append(float((signs * (predictions != labels)).double().mean()))
        most.append(float(is_wrong.double().mean()))
    # The class that never errs gives 0, and so does one that errs always, on average.
    return RademacherComplexity(
        max(0.0, sum(found) / num_draws), sum(most) / num_draws, tuple(found)
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
