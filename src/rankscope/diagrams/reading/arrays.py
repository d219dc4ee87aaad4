"""The arrays of a module by name: its parameters, its buffers, and a few derived ones."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from rankscope.diagrams.parts import Role
from rankscope.diagrams.reading.sorts import GENERIC, Sort
from rankscope.diagrams.reading.values import Value, whole
from rankscope.errors import UnsupportedModuleError

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def module_arrays(module: nn.Module) -> dict[str, Tensor]:
    """The arrays that the nodes of `from_module(module, …)` name.

    Parameters and buffers under their qualified names, and for every batch normalization in
    evaluation mode its "…scale" and "…shift", which fold the running statistics. Leading axes
    of size 1 are left out, so that rows of a positional table of shape (1, length, features)
    can be taken.

    Example:
        >>> arrays = module_arrays(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval())
        >>> {name: tuple(arrays[name].shape) for name in ("0.weight", "1.scale")}
        {'0.weight': (3, 2), '1.scale': (3,)}
    """
    arrays = {name: _without_leading_ones(tensor) for name, tensor in _registered(module)}
    for path, part in module.named_modules():
        if isinstance(part, BatchNorm) and part.running_var is not None:
            scale, shift = _folded(part)
            arrays[qualified(path, "scale")] = scale
            arrays[qualified(path, "shift")] = shift
    return arrays


def qualified(path: str, name: str) -> str:
    """A name inside a module; the outermost module has the path ""."""
    return f"{path}.{name}" if path else name


def _registered(module: nn.Module) -> list[tuple[str, Tensor]]:
    return [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]


def _without_leading_ones(tensor: Tensor) -> Tensor:
    while tensor.ndim > 1 and tensor.shape[0] == 1:
        tensor = tensor[0]
    return tensor.detach()


def _folded(layer: BatchNorm) -> tuple[Tensor, Tensor]:
    """The scale and shift that a batch normalization applies in evaluation mode."""
    assert layer.running_var is not None
    assert layer.running_mean is not None
    scale = (layer.running_var + layer.eps).rsqrt()
    shift = -layer.running_mean * scale
    if layer.affine:
        scale, shift = scale * layer.weight.detach(), shift * layer.weight.detach()
        shift = shift + layer.bias.detach()
    return scale, shift


class Arrays:
    """Finds the name of a tensor that belongs to a module."""

    def __init__(self, module: nn.Module) -> None:
        self._tensors = _registered(module)
        # The first name of a shared tensor stands for all, so that it is counted once.
        self._names: dict[int, str] = {}
        for name, tensor in self._tensors:
            self._names.setdefault(id(tensor), name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all arrays."""
        return tuple(name for name, _ in self._tensors)

    @property
    def num_rows(self) -> dict[str, int]:
        """Length of the first axis of every array, as `module_arrays` gives it."""
        return {name: max([1, *_without_leading_ones(t).shape[:1]]) for name, t in self._tensors}

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All arrays."""
        return tuple(tensor for _, tensor in self._tensors)

    def value(self, tensor: Tensor, sorts: Sequence[Sort] | None = None) -> Value:
        """A registered tensor, or some rows of one, as a value.

        Raises:
            UnsupportedModuleError: if it is neither.
        """
        given = sorts if sorts is not None else (GENERIC,) * tensor.ndim
        name = self._names.get(id(tensor))
        if name is not None:
            found = whole(name, tuple(tensor.shape), given, Role.PARAMETER)
            return _with_rows(found, tensor, None)
        for known, base in self._tensors:
            rows = _rows_of(tensor, base)
            if rows is not None:
                found = whole(known, tuple(tensor.shape), given, Role.PARAMETER)
                return _with_rows(found, base, rows)
        raise UnsupportedModuleError(
            f"a tensor of shape {tuple(tensor.shape)} is made inside forward; "
            "register it as a buffer"
        )


def _with_rows(value: Value, base: Tensor, rows: tuple[int, int] | None) -> Value:
    num_rows = max([1, *_without_leading_ones(base).shape[:1]])
    if rows == (0, num_rows):
        rows = None
    return replace(value, rows=rows, row_entries=base.numel() // num_rows)


def _rows_of(tensor: Tensor, base: Tensor) -> tuple[int, int] | None:
    """The rows of `base` that `tensor` is a view of, or None."""
    if not tensor.numel() or not _share_numbers(tensor, base):
        return None
    entries = math.prod(_without_leading_ones(base).shape[1:])
    start = tensor.storage_offset() - base.storage_offset()
    stop = start + tensor.numel()
    is_inside = 0 <= start < stop <= base.numel()
    if not is_inside or start % entries or stop % entries:
        return None
    return start // entries, stop // entries


def _share_numbers(tensor: Tensor, base: Tensor) -> bool:
    """Whether both are plain stretches of one storage."""
    return (
        tensor.dtype == base.dtype
        and tensor.is_contiguous()
        and base.is_contiguous()
        and tensor.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    )


def is_causal_mask(mask: Tensor, *, true_is_kept: bool) -> bool:
    """Whether a mask lets each query see exactly the keys up to its own position.

    Booleans keep or drop entries; numbers are added, so 0 keeps and minus infinity drops.
    """
    if mask.ndim < 2 or math.prod(mask.shape[:-2]) != 1:
        return False
    matrix = mask.reshape(mask.shape[-2:])
    kept = torch.ones_like(matrix, dtype=torch.bool).tril()
    if mask.dtype == torch.bool:
        return torch.equal(matrix, kept if true_is_kept else ~kept)
    wanted = torch.zeros_like(matrix).masked_fill(~kept, -math.inf)
    return torch.equal(matrix, wanted)
