"""What was kept of a network's convolutions, counted on the networks themselves."""

import math
from dataclasses import dataclass

from torch import Tensor, nn

from rankscope.experiments.subject import Subject
from rankscope.layers.convolution import FactorizedConv2d


@dataclass(frozen=True)
class Comparison:
    """A compressed network beside its reference.

    Args:
        dense: numbers in the weights of the convolutions that may be compressed.
        kept: numbers in what stands in their place.
        error: relative Frobenius error of all those weights together.
    """

    dense: int
    kept: int
    error: float

    @property
    def share(self) -> float:
        """Kept over dense."""
        return self.kept / self.dense


def compare(subject: Subject, reference: nn.Module, compressed: nn.Module) -> Comparison:
    """Count and compare the convolutions of the stages."""
    dense, kept, lost, total = 0, 0, 0.0, 0.0
    for name, convolution in subject.convolutions(reference).items():
        weight = convolution.weight.detach().double()
        rebuilt, size = _weight(compressed.get_submodule(name))
        dense += weight.numel()
        kept += size
        lost += float((rebuilt.detach().double() - weight).square().sum())
        total += float(weight.square().sum())
    return Comparison(dense, kept, math.sqrt(lost / total))


def _weight(module: nn.Module) -> tuple[Tensor, int]:
    """The weight of a convolution, and how many numbers it is made of."""
    if isinstance(module, FactorizedConv2d):
        return module.to_dense().weight, sum(core.numel() for core in module.cores.parameters())
    assert isinstance(module, nn.Conv2d), f"{module} is no convolution"
    return module.weight, module.weight.numel()
