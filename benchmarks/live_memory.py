"""How much memory a computation holds at once, counted in tensors and not by the machine.

A mode of torch that is not public sees every operation, those of the backward pass too; therefore
this is no part of the package.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the storages of all tensors that operations give back, as long as they are alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        for value in tree_leaves((args, kwargs)):
            # Everything made here was given back by an operation: this one was there before.
            if isinstance(value, Tensor):
                self._add(value.untyped_storage(), 0)
        outputs = func(*args, **(kwargs or {}))
        for value in tree_leaves(outputs):
            if isinstance(value, Tensor):
                self._add(value.untyped_storage(), value.untyped_storage().nbytes())
        return outputs

    def _add(self, storage: torch.UntypedStorage, size: int) -> None:
        key = storage._cdata
        if key in self._seen:
            return
        self._seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes that tensors made by a call hold at once, those it began with left out."""
    live = _LiveBytes()
    with live:
        call()
    return live.peak
