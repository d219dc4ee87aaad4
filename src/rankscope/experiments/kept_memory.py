"""How much memory a computation keeps until its gradients are taken."""

from collections.abc import Callable

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def kept_bytes(call: Callable[[], object]) -> int:
    """Bytes of all tensors that a call keeps for its backward pass, parameters left out.

    It is what grows with batch and length, and the same number on every machine. What is computed
    again in the backward pass is not kept, and not counted.

    Example:
        >>> import torch
        >>> weight = torch.ones(1000, requires_grad=True)
        >>> kept_bytes(lambda: (weight * 2).exp().sum())
        4000
    """
    kept: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        # A view shares the memory of what it looks at; the tensor is held, so that no other one
        # can take its place in memory before all are counted.
        if not (tensor.is_leaf and tensor.requires_grad) and not _is_of_a_parameter(tensor):
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        result = call()  # alive until all is counted
    found = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    del result
    return found


def _is_of_a_parameter(tensor: Tensor) -> bool:
    base = tensor._base
    return base is not None and base.is_leaf and base.requires_grad
