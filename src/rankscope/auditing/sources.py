"""What an opened model is: a name, perhaps a configuration, perhaps tensors to be read."""

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.tensor_files.sources import TensorSource


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
