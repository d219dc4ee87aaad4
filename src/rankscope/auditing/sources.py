"""Sources of configurations and weights, opened without running anything."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from rankscope.errors import ModelFileError

# --- What an opened model is: a name, perhaps a configuration, perhaps tensors to be read ---------


@dataclass(frozen=True)
class TensorEntry:
    """A tensor that has not been read.

    Args:
        name: as in the file.
        shape: its shape; any size may be zero.
        dtype: torch's name for it, such as "float32" or "bfloat16".
        tied_names: other names of the very same tensor, which have no entry of their own.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    tied_names: tuple[str, ...] = ()


class TensorSource(ABC):
    """Tensors in their order, read one at a time; a source keeps none of those it has read."""

    @property
    @abstractmethod
    def entries(self) -> tuple[TensorEntry, ...]:
        """Every tensor once, known without reading any."""

    @abstractmethod
    def read(self, name: str) -> Any:
        """One `torch.Tensor` by the name of its entry, in its own dtype, on the CPU.

        It may be a view of a file: treat it as read-only.

        Raises:
            KeyError: if no entry has that name.
            ModelFileError: if the tensor cannot be read any more, or has no values.
        """


@dataclass(frozen=True)
class OpenedModel:
    """A model, opened but not read.

    Args:
        name: the path or the class it was opened from.
        config: the document of its `config.json`, or None if it has none.
        tensors: its weights, or None if only the configuration is known.
    """

    name: str
    config: Mapping[str, object] | None
    tensors: TensorSource | None


# --- Tensors that torch already knows by name: a state dict, of a module or mapped from a file ----


class StateDict(TensorSource):
    """The tensors of a state dict; those that are tied have one entry, under the first name.

    Args:
        state: tensors by name; other values, such as counters, are no weights and are left out.
        who: whose it is, for messages.

    Raises:
        ModelFileError: if a tensor is sparse, or has no shape yet.
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
                f"{self._who}: tensor {name!r} is on the meta device, which holds no values; "
                "load the weights first."
            )
        return tensor.detach().cpu()

    def _checked(self, name: str, tensor: Tensor) -> Tensor:
        if is_lazy(tensor):
            raise ModelFileError(
                f"{self._who}: tensor {name!r} has no shape before the module has been run once."
            )
        if tensor.layout is not torch.strided:
            raise ModelFileError(
                f"{self._who}: tensor {name!r} is {tensor.layout}; only dense tensors are read."
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
