"""Losses of networks that are to be robust: a margin, and the worst perturbation of an attack."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.compression.training.loop import Loss, cross_entropy
from rankscope.errors import TrainingError
from rankscope.networks.batches import Batch
from rankscope.robust.attacks import Threat

# The loss of networks that are to be certified: right by a margin, and no further.


@dataclass(frozen=True)
class MarginLoss:
    r"""How much the logits lack to a margin, :math:`\sum_{i \ne y} \max(0, m - f_y + f_i) / C`.

    A logit that is ahead of all others by m adds nothing, however far ahead it is. With Lipschitz
    constant 1, a margin of m certifies a radius of m / √2; the published networks were trained
    with m = 1/2.

    Args:
        margin: m.

    Example:
        >>> import torch
        >>> batch = Batch(torch.tensor([[1.0, 0.75, 0.0, 0.0]]), torch.tensor([0]))
        >>> float(MarginLoss()(nn.Identity(), batch))
        0.0625

    Raises:
        TrainingError: if the margin is not positive.
    """

    margin: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.margin < math.inf:
            raise TrainingError(
                f"MarginLoss: the margin must be finite and above 0, got {self.margin}."
            )

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean over a batch."""
        assert batch.targets is not None, "a classifier is trained on labels"
        return functional.multi_margin_loss(model(batch.inputs), batch.targets, margin=self.margin)


# Cross-entropy of a margin: for networks whose logits differ by little.


@dataclass(frozen=True)
class OffsetCrossEntropy:
    r"""Cross-entropy of :math:`(f - m e_y) / \tau`, times τ: the right logit is m behind.

    A margin that the right logit has to make good, as in `MarginLoss`, without an end: a sample
    that is far ahead still counts a little. For networks of Lipschitz constant 1.

    Args:
        offset: m.
        temperature: τ.
        annealing: b of a factor :math:`(1 - p_y)^b`, which takes weight from samples that are
            right already, so that the margins of the others grow; 0 for none.

    Example:
        >>> import torch
        >>> batch = Batch(torch.tensor([[0.5, 0.0]]), torch.tensor([0]))
        >>> loss = OffsetCrossEntropy(0.5, 1.0)(nn.Identity(), batch)
        >>> round(float(loss), 4)  # both are as likely: log 2
        0.6931

    Raises:
        TrainingError: if offset or annealing is negative or the temperature is not positive.

    Reference:
        Prach & Lampert (2022), Almost-orthogonal layers, arXiv:2208.03160; annealing as in
        Lai, Huang, Kung & Chen (2025), arXiv:2505.15174, which uses m = 2, τ = 0.75 and b = 5.
    """

    offset: float = 0.5
    temperature: float = 0.25
    annealing: float = 0.0

    def __post_init__(self) -> None:
        offsets = (self.offset, self.annealing)
        if not (
            all(0 <= value < math.inf for value in offsets) and 0 < self.temperature < math.inf
        ):
            raise TrainingError(
                f"OffsetCrossEntropy: offset and annealing must be at least 0 and the temperature "
                f"above 0, got {self.offset}, {self.annealing} and {self.temperature}."
            )

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean over a batch."""
        assert batch.targets is not None, "a classifier is trained on labels"
        logits: Tensor = model(batch.inputs).float()
        ahead = self.offset * functional.one_hot(batch.targets, logits.shape[1])
        scaled = (logits - ahead) / self.temperature
        losses = functional.cross_entropy(scaled, batch.targets, reduction="none")
        if self.annealing:  # the probability of the right class is exp(-loss)
            losses = losses * (-torch.expm1(-losses)) ** self.annealing
        return self.temperature * losses.mean()


# Adversarial training: the loss at the worst perturbation that is found, not at the sample.


@dataclass(frozen=True)
class AdversarialLoss:
    r"""The game :math:`\min_w \max_{\lVert \delta \rVert \le r} \ell(f_w(x + \delta), y)`.

    The inner maximum is looked for by projected steps from a random point (PGD); it is not found
    in general, so that nothing is certified. The random points follow from PyTorch's generator,
    which `fit` seeds before every step.

    Args:
        threat: what is allowed: radius, norm and range of pixels.
        loss: that is raised by the perturbation and lowered by the weights.
        steps: of the inner search.
        step: length of one, as a share of the radius.

    Raises:
        TrainingError: if there is no step.

    Reference:
        Madry et al. (2018), equation 2.1, arXiv:1706.06083.
    """

    threat: Threat
    loss: Loss = cross_entropy
    steps: int = 10
    step: float = 0.25

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.step > 0:
            raise TrainingError(
                f"AdversarialLoss: wanted at least 1 step of a length above 0, got {self.steps} "
                f"of {self.step}."
            )

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss at perturbed samples; gradients do not pass through the search."""
        return self.loss(model, Batch(self.perturbed(model, batch), batch.targets))

    def perturbed(self, model: nn.Module, batch: Batch) -> Tensor:
        """The samples where the search ends."""
        inputs, threat = batch.inputs, self.threat
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        points = threat.within(
            inputs, inputs + threat.norm.random(inputs, threat.radius, generator)
        )
        for _ in range(self.steps):
            points = points.detach().requires_grad_()
            with torch.enable_grad():
                value = self.loss(model, Batch(points, batch.targets))
            (gradients,) = torch.autograd.grad(value, points)
            moved = points.detach() + self.step * threat.radius * threat.norm.steepest(gradients)
            points = threat.within(inputs, moved)
        return points
