"""How far an input can move before its label may change."""

import math

import torch
from torch import Tensor

from rankscope.errors import RobustnessError
from rankscope.robustness.lipschitz import LipschitzBound


def require_labels(outputs: Tensor, labels: Tensor) -> None:
    """Refuse labels that do not belong to the outputs of a classifier.

    Raises:
        RobustnessError: if there is not one label for each row, or one is no class.
    """
    is_fitting = outputs.ndim == 2 and outputs.shape[1] > 1 and labels.shape == outputs.shape[:1]
    if not is_fitting or len(labels) == 0:
        raise RobustnessError(
            f"Wanted one score for each of at least 2 classes, (samples, classes), and one label "
            f"for each sample; got outputs of shape {tuple(outputs.shape)} and labels of shape "
            f"{tuple(labels.shape)}."
        )
    if int(labels.min()) < 0 or int(labels.max()) >= outputs.shape[1]:
        raise RobustnessError(
            f"Labels must be 0..{outputs.shape[1] - 1}, got {int(labels.min())} to "
            f"{int(labels.max())}."
        )
    if not torch.isfinite(outputs).all():
        wrong = int((~torch.isfinite(outputs)).sum())
        raise RobustnessError(
            f"{wrong:,} of {outputs.numel():,} outputs are not finite, so that nothing can be "
            "certified."
        )


def margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """By how much the label's score is above each other one, (samples, classes - 1).

    Example:
        >>> margins(torch.tensor([[3.0, 1.0, 4.0]]), torch.tensor([0]))
        tensor([[ 2., -1.]])

    Raises:
        RobustnessError: if labels and outputs do not fit.
    """
    require_labels(outputs, labels)
    return outputs.gather(1, labels[:, None]) - outputs.gather(1, other_classes(outputs, labels))


def other_classes(outputs: Tensor, labels: Tensor) -> Tensor:
    """The classes that are not the label, in order, (samples, classes - 1)."""
    places = torch.arange(outputs.shape[1] - 1, device=labels.device).expand(len(labels), -1)
    return places + (places >= labels[:, None])


def rounding(outputs: Tensor) -> Tensor:
    """What a margin may owe to rounding in the forward pass, generously, (samples, 1)."""
    return 16 * torch.finfo(outputs.dtype).eps * outputs.abs().amax(dim=1, keepdim=True)


def certified_radii(outputs: Tensor, labels: Tensor, bound: LipschitzBound) -> Tensor:
    r"""Euclidean radii within which no input has another label, (samples,).

    .. math:: \min_{i \ne y} \frac{f_y - f_i}{L_{y i}}, \qquad L_{y i} \le \sqrt 2 L

    with :math:`L_{y i}` of the difference of two outputs: if the last operation is a product with a
    matrix, that of the features times the distance of two rows. Margins are lowered by what
    rounding may have added.

    Args:
        outputs: of the model, (samples, classes).
        labels: (samples,).
        bound: of the same model.

    Returns:
        float64; 0 where the label is not the largest.

    Raises:
        RobustnessError: if labels and outputs do not fit, or the bound is of another model.

    Reference:
        Tsuzuku, Sato & Sugiyama (2018), arXiv:1802.04034.
    """
    differences = margins(outputs.double(), labels) - rounding(outputs)
    pairs = bound.pairs
    if pairs is None or len(pairs) != outputs.shape[1]:
        held = 0 if pairs is None else len(pairs)
        raise RobustnessError(
            f"The bound is of a model with {held} classes, but outputs have {outputs.shape[1]}."
        )
    constants = pairs[labels[:, None], other_classes(outputs, labels)]
    # Two outputs whose difference never changes: any perturbation is safe, if it is positive.
    ratios = torch.where(constants > 0, differences / constants, differences.sign() * math.inf)
    return ratios.nan_to_num(nan=0.0, posinf=math.inf).amin(dim=1).clamp(min=0.0)
