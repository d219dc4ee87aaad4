"""Scores from activations: errors of outputs on calibration data, not of weights.

A weight W that sees inputs x with second moments C = L Lᵀ makes an output error of expected square
‖(W - W') L‖², so that directions which no input takes cost nothing.

Reference:
    Wang et al. (2024), "SVD-LLM", Sec. 3.1 (truncation-aware whitening), arXiv:2403.07378.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import torch
from torch import nn

from rankscope.compression.calibration import run_batches
from rankscope.compression.observers import Observer, bound_arguments, observer_of
from rankscope.compression.scores import Batch, Scoring, Weighing, run
from rankscope.compression.sites import read_sites
from rankscope.errors import CompressionError
from rankscope.modes import inference

RIDGE = 1e-6


class Activations(Scoring):
    """Errors of every site's outputs on batches of real inputs.

    The batches are run once, one after the other, in inference mode; of each site only the second
    moments of its inputs are kept. Sites whose class does not show its inputs (the projection of
    an LSTM's states), or that no data reach, are weighed by their weights alone.

    Args:
        batches: inputs as the model takes them.
        ridge: is added to the moments, in units of their mean diagonal, so that they are
            invertible: inputs the data lack count as much smaller ones, not as none.
    """

    name: ClassVar[str] = "activations"

    def __init__(self, batches: Iterable[Batch], *, ridge: float = RIDGE) -> None:
        if not 0 < ridge < 1:
            raise CompressionError(f"Activations: ridge must lie between 0 and 1, got {ridge}.")
        self._batches = batches
        self._ridge = ridge
        self._weighings: dict[str, Weighing | None] = {}

    def prepare(self, model: nn.Module) -> None:
        """Run the batches, and keep the moments of what each site sees.

        Raises:
            CompressionError: if there is no batch, one does not fit the model, or an input of a
                site is not finite.
        """
        sites = read_sites(model).sites
        observers: dict[str, Observer] = {}
        for site in sites:
            observer = observer_of(model.get_submodule(site.module_name))
            if site.module_name not in observers and observer is not None:
                observers[site.module_name] = observer
        self._watch(model, observers)
        found = {
            name: observer.weighings(self._ridge, who=name or "the model")
            for name, observer in observers.items()
        }
        self._weighings = {
            site.name: found.get(site.module_name, {}).get(site.part) for site in sites
        }

    def weigh(self, site_name: str) -> Weighing | None:
        """How one site is weighed; None if no data reached it."""
        return self._weighings.get(site_name)

    def _watch(self, model: nn.Module, observers: Mapping[str, Observer]) -> None:
        removals: list[Callable[[], None]] = []
        # Hooks see numbers of real inputs; a trace knows only shapes.
        for name, observer in observers.items():
            module = model.get_submodule(name)
            handle = module.register_forward_hook(_seeing(observer), with_kwargs=True)
            removals.append(handle.remove)
        try:
            with torch.no_grad(), inference(model):
                run_batches(model, self._batches, lambda batch: _ignore(run(model, batch)))
        finally:
            for remove in removals:
                remove()


def _seeing(
    observer: Observer,
) -> Callable[[nn.Module, tuple[object, ...], dict[str, object], object], None]:
    # After the call: inputs that do not fit are then refused by the module itself.
    def see(
        module: nn.Module, given: tuple[object, ...], named: dict[str, object], output: object
    ) -> None:
        observer.see(bound_arguments(module, given, named))

    return see


def _ignore(output: object) -> None:
    del output
