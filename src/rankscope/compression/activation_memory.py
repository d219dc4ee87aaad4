"""Memory of activations: how many bytes live at once while a model runs, and while it learns.

Every operation that PyTorch carries out is seen, also those of the backward pass. The memory of
each new result counts from then on, until nobody holds it any more; the largest sum is the peak.
Weights, buffers and inputs do not count. What a kernel allocates and frees inside of one operation
is not seen, and neither is what the allocator keeps back: this is the model's share, the same on
every machine, which the resident size of a process is not.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rankscope.compression.exporting import tensors
from rankscope.compression.scores import Batch, run
from rankscope.modes import all_trainable, inference


def inference_bytes(model: nn.Module, batch: Batch) -> int:
    """The largest number of bytes of activations that live at once in one forward pass.

    Example:
        >>> twice = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
        >>> inference_bytes(twice, torch.ones(3, 4))  # float32: 3 x 8 and 3 x 2 together
        120
    """
    live = _LiveBytes(_held(model, batch))
    with torch.no_grad(), inference(model), live:
        run(model, batch)
    return live.peak


def training_bytes(model: nn.Module, batch: Batch, loss: Callable[[Any], Tensor]) -> int:
    """The same in one training step: forward, the loss of the output, backward.

    The gradient of a weight is dropped as soon as it is whole, so that at most those that are being
    made count. The model's mode, buffers and gradients are afterwards as before.

    Raises:
        RuntimeError: if the loss depends on no weight, or the model cannot be run in training mode.
    """
    live = _LiveBytes(_held(model, batch))
    with (
        _as_before(model),
        all_trainable(model),
        torch.enable_grad(),
        torch.random.fork_rng(devices=[]),
        live,
    ):
        model.train()
        loss(run(model, batch)).backward()  # type: ignore[no-untyped-call]
    return live.peak


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of results that are alive."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known = [tensor.untyped_storage() for tensor in known]
        self._seen: dict[int, object] = {storage._cdata: storage for storage in self._known}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        results = func(*args, **(kwargs or {}))
        for result in tensors(results):
            self._see(result.untyped_storage())
        return results

    def _see(self, storage: torch.UntypedStorage) -> None:
        place, size = storage._cdata, storage.nbytes()
        if place in self._seen:
            return

        def end(reference: object) -> None:
            del self._seen[place]
            self.live -= size

        self._seen[place] = weakref.ref(storage, end)
        self.live += size
        self.peak = max(self.peak, self.live)


def _held(model: nn.Module, batch: Batch) -> list[Tensor]:
    return [*model.parameters(), *model.buffers(), *tensors(batch)]


@contextmanager
def _as_before(model: nn.Module) -> Iterator[None]:
    """Give a model its mode, buffers and gradients back, and drop gradients as they are made."""
    parameters = list(model.parameters())
    gradients = [parameter.grad for parameter in parameters]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    hooks: list[Any] = []
    with inference(model):
        try:
            for parameter in parameters:
                parameter.grad = None
            with all_trainable(model):
                hooks = [
                    parameter.register_post_accumulate_grad_hook(_drop)  # type: ignore[no-untyped-call]
                    for parameter in parameters
                    if parameter.requires_grad
                ]
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            with torch.no_grad():
                for buffer, kept in buffers:
                    buffer.copy_(kept)


def _drop(parameter: Tensor) -> None:
    parameter.grad = None
