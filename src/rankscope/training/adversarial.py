"""Adversarial training: the loss at the worst perturbation that is found, not at the sample."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import TrainingError
from rankscope.robustness.attacks import Threat
from rankscope.training.batches import Batch
from rankscope.training.loop import Loss, cross_entropy


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
