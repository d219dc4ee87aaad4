"""What an opened model is: a name, perhaps a configuration, perhaps tensors to be read."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
