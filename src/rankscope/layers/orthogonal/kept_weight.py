"""A weight that is built from parameters, kept as long as they stay the same."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


class KeptWeight:
    """The last weight that was built, and what it was built from.

    Parameters are compared by their numbers: writing through `.data` is noticed too. Copies and
    saved files begin empty.
    """

    def __init__(self) -> None:
        self._kept: tuple[list[Tensor], Tensor] | None = None

    def get(self, sources: Iterable[Tensor], build: Callable[[], Tensor]) -> Tensor:
        """The weight of these sources; built again if one of them differs."""
        now = list(sources)
        if self._kept is None or not _same(self._kept[0], now):
            self._kept = ([tensor.clone() for tensor in now], build())
        return self._kept[1]

    def drop(self) -> None:
        """Free the memory."""
        self._kept = None

    def __getstate__(self) -> dict[str, object]:
        return {"_kept": None}


def built_in_full_precision(build: Callable[[], Tensor], device: torch.device) -> Tensor:
    """What `build` gives outside of autocast: short floats hold no orthogonal matrix."""
    with torch.autocast(device.type, enabled=False):
        return build()


def _same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(
        a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
        for a, b in zip(first, second, strict=True)
    )
