"""Reading inputs from a file, without running anything that may be in it."""

from pathlib import Path

import torch
from torch import Tensor

from rankscope.errors import RequestError


def read_samples(path: Path) -> Tensor:
    """Read one tensor from .npy, .pt or .safetensors.

    Raises:
        RequestError: if the file cannot be read, or does not hold exactly one tensor of numbers
            with at least two axes.
    """
    readers = {".npy": _read_numpy, ".pt": _read_torch, ".safetensors": _read_safetensors}
    if path.suffix not in readers:
        raise RequestError(f"--data takes {', '.join(readers)}, got {path.name!r}.")
    try:
        found = readers[path.suffix](path)
    except OSError as error:
        raise RequestError(f"Cannot read {path}: {error.strerror or error}.") from error
    except Exception as error:  # the three libraries raise all kinds of errors on broken files
        raise RequestError(f"{path} is not a sound {path.suffix} file: {error}") from error
    if not isinstance(found, Tensor) or found.ndim < 2:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise RequestError(f"{path} must hold a tensor (count, positions, …), got {shape}.")
    return found


def _read_numpy(path: Path) -> object:
    import numpy

    return torch.from_numpy(numpy.load(path, allow_pickle=False))


def _read_torch(path: Path) -> object:
    return torch.load(path, weights_only=True, map_location="cpu")


def _read_safetensors(path: Path) -> object:
    from safetensors.torch import load_file

    tensors = list(load_file(path).values())
    return tensors[0] if len(tensors) == 1 else len(tensors)
