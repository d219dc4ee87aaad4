"""Tensors that torch already knows by name: the state dict of a module."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from rankscope.errors import ModelFileError, printable
from rankscope.tensor_files.sources import TensorEntry, TensorSource


class StateDict(TensorSource):
    """The tensors of a state dict; those that are tied have one entry, under the first name.

    Args:
        state: tensors by name; other values, such as counters, are no weights and are left out.
        who: whose it is, for messages.

    Raises:
        ModelFileError: if a tensor is sparse, nested or quantized, or has no shape yet.
    """

    def __init__(self, state: Mapping[str, Any], *, who: str) -> None:
        self._who = who
        self._tensors: dict[str, Tensor] = {}
        names: dict[object, list[str]] = {}
        for name, value in state.items():
            if isinstance(value, Tensor):
                self._tensors[name] = self._checked(name, value)
                names.setdefault(_identity(value), []).append(name)
        self._entries = tuple(self._entry(*tied) for tied in names.values())

    @property
    def entries(self) -> tuple[TensorEntry, ...]:
        """Every tensor once, in the order of the state dict."""
        return self._entries

    def read(self, name: str) -> Tensor:
        """One tensor, without its gradient; see the base class."""
        tensor = self._tensors[name]
        if tensor.is_meta:
            raise ModelFileError(
                f"{self._who}: tensor '{printable(name)}' is on the meta device, which holds no "
                "values; load the weights first."
            )
        return tensor.detach().cpu()

    def _checked(self, name: str, tensor: Tensor) -> Tensor:
        if is_lazy(tensor):
            raise ModelFileError(
                f"{self._who}: tensor '{printable(name)}' has no shape before the module has been "
                "run once."
            )
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            kind = "nested" if tensor.is_nested else tensor.layout
            raise ModelFileError(
                f"{self._who}: tensor '{printable(name)}' is "
                f"{'quantized' if tensor.is_quantized else kind}; only dense tensors are read."
            )
        return tensor

    def _entry(self, name: str, *tied_names: str) -> TensorEntry:
        tensor = self._tensors[name]
        dtype = str(tensor.dtype).removeprefix("torch.")
        return TensorEntry(name, tuple(tensor.shape), dtype, tied_names)


def _identity(tensor: Tensor) -> object:
    """Equal for two names of the same values in memory; without memory, only for one object."""
    if tensor.data_ptr() == 0:
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()
