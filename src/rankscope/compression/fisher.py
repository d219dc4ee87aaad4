"""Scores from Fisher information: what an error of each weight does to the loss.

Near a minimum the loss changes by about ½ Σ Fᵢⱼ ΔWᵢⱼ², where F is the expected squared gradient
(the diagonal of the empirical Fisher information). With one mean F for a whole weight this is
½ F ‖W‖² error², so that ½ F ‖W‖² is what the squared relative error of a site counts for.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from rankscope.compression.calibration import run_batches
from rankscope.compression.parts import parts_of
from rankscope.compression.scores import Scoring, Weighing
from rankscope.compression.sites import Site, read_sites
from rankscope.errors import CompressionError
from rankscope.modes import all_trainable, inference


class Fisher(Scoring):
    """Errors of the weights, each site weighted by the mean squared gradient of a loss.

    Gradients are those of whole batches: the squares are smaller than those of single samples by
    about the number of samples, but for all sites alike. Multipliers are scaled so that their mean
    is 1; a site that the loss does not depend on is weighed by its weight alone.

    Args:
        loss: of a model on a batch, one number.
        batches: whatever the loss takes; they are used once.

    Reference:
        Hsu et al. (2022), "Language model compression with weighted low-rank factorization",
        arXiv:2207.00112 (there row by row; here one number for each weight).
    """

    name: ClassVar[str] = "fisher"

    def __init__(self, loss: Callable[[nn.Module, object], Tensor], batches: Iterable[object]):
        self._loss = loss
        self._batches = batches
        self._multipliers: dict[str, float] = {}

    def prepare(self, model: nn.Module) -> None:
        """Sum the squared gradients over the batches.

        Raises:
            CompressionError: if there is no batch, one does not fit the model, or the loss is not
                one finite number that depends on the weights.
        """
        sites = read_sites(model).sites
        squares = {name: torch.zeros_like(part) for name, part in model.named_parameters()}
        with inference(model), all_trainable(model):
            run_batches(model, self._batches, lambda batch: self._add(model, batch, squares))
        changes = {site.name: _change(model, site, squares) for site in sites}
        mean = sum(changes.values()) / max(sum(change > 0 for change in changes.values()), 1)
        self._multipliers = {name: change / mean for name, change in changes.items() if change > 0}

    def weigh(self, site_name: str) -> Weighing | None:
        """How one site is weighed; None if the loss does not depend on it."""
        multiplier = self._multipliers.get(site_name)
        return None if multiplier is None else Weighing(multiplier=multiplier)

    def _add(self, model: nn.Module, batch: object, squares: Mapping[str, Tensor]) -> None:
        loss = self._loss(model, batch)
        if loss.numel() != 1 or not bool(torch.isfinite(loss.detach()).all()):
            raise CompressionError(
                f"Fisher: the loss must be one finite number, got {_shown(loss)}."
            )
        if not loss.requires_grad:
            raise CompressionError(
                "Fisher: the loss does not depend on any of the model's "
                f"{len(squares)} parameters; it must not be computed without gradients."
            )
        gradients = torch.autograd.grad(loss.sum(), list(model.parameters()), allow_unused=True)
        for square, gradient in zip(squares.values(), gradients, strict=True):
            if gradient is not None:
                square.addcmul_(gradient, gradient)


def _shown(loss: Tensor) -> str:
    return f"{loss.item()}" if loss.numel() == 1 else f"the shape {tuple(loss.shape)}"


def _change(model: nn.Module, site: Site, squares: Mapping[str, Tensor]) -> float:
    """½ F ‖W‖² of a site, with F up to a factor that all sites share."""
    shadow = copy.deepcopy(model.get_submodule(site.module_name))
    prefix = f"{site.module_name}." if site.module_name else ""
    for name, parameter in shadow.named_parameters():
        parameter.data = squares[prefix + name]
    # The shadow's weights are the squared gradients, so that its parts are those of the site.
    fisher = next(part.weight for part in parts_of(shadow) if part.name == site.part)
    return float(fisher.double().mean() * site.weight.double().square().sum() / 2)
