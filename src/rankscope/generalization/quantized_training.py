"""Training a network for the few bits that it will be counted in.

quantization = fixed_scales(model, bits=2)      # before any sample is seen
fit(model, QuantizedCrossEntropy(quantization), data, recipe)
quantize_network(model, quantization)           # what was trained, and what a bound is for
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.errors import GeneralizationError
from rankscope.generalization.finite_class import Quantization
from rankscope.training.batches import Batch


def fixed_scales(model: nn.Module, *, bits: int) -> Quantization:
    """The scales that suit a network's initial weights best: they know nothing of any sample.

    Args:
        model: before it is trained.
        bits: of a number.

    Raises:
        GeneralizationError: if a tensor is all zero, so that it has no scale yet.
    """
    free = Quantization(bits)
    for name, weight in model.named_parameters():
        if not bool(weight.detach().any()):
            raise GeneralizationError(
                f"fixed_scales: all {weight.numel():,} numbers of {name} are zero, which says "
                "nothing of their scale; start them elsewhere, or leave them out."
            )
    scales = {
        name: free.scale_of(name, weight.detach()) for name, weight in model.named_parameters()
    }
    return Quantization(bits, scales)


@dataclass(frozen=True)
class QuantizedCrossEntropy:
    r"""Cross-entropy of the rounded network; gradients go straight through the rounding.

    With q(w) the rounded weights, :math:`\partial q / \partial w` is taken to be 1 where w is
    within half a step of the codes, and 0 outside, so that weights do not drift away.

    Args:
        quantization: with fixed scales.

    Reference:
        Bengio, Léonard & Courville (2013), Sec. 4, arXiv:1308.3432.
    """

    quantization: Quantization

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of a batch."""
        rounded = {name: self._rounded(name, weight) for name, weight in model.named_parameters()}
        logits = torch.func.functional_call(model, rounded, (batch.inputs,))
        assert batch.targets is not None, "a classifier is trained on labels"
        return nn.functional.cross_entropy(logits, batch.targets)

    def _rounded(self, name: str, weight: Tensor) -> Tensor:
        scale = self.quantization.scale_of(name, weight.detach())
        limit = (self.quantization.largest_code + 0.5) * scale
        inside = weight.clamp(-limit, limit)
        codes = self.quantization.codes(weight.detach(), scale)
        return inside + (codes * scale - inside).detach()
