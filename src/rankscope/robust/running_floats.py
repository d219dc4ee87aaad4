"""The floats in which a model is certified: its own, or others that it is converted to.

A certificate holds for one arithmetic. A network that was trained in float32 and is run in float64
computes the same function of the same weights, with rounding that is 2^29 times smaller.
"""

import copy
import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from rankscope.errors import RobustnessError

DTYPES = {
    name: getattr(torch, name) for name in ("float32", "float64", "bfloat16", "float16")
}  # that torch computes in on a processor


def in_floats(
    model: nn.Module, inputs: Tensor, dtype: torch.dtype | None = None
) -> tuple[nn.Module, Tensor]:
    """A model and samples in one floating-point format; the model that is given is not changed.

    Samples are taken in the format of the model, so that balls and attacks are those of its own
    inputs.

    Args:
        model: with parameters and buffers in any formats.
        inputs: samples, (samples, …); integers, such as tokens, stay what they are.
        dtype: that all of them are converted to; None for that of the model's parameters (or its
            buffers, without any), and for inputs as they are if these have several or none.

    Example:
        >>> model, inputs = in_floats(nn.Linear(2, 2), torch.ones(1, 2), torch.float64)
        >>> model.weight.dtype, inputs.dtype
        (torch.float64, torch.float64)

    Raises:
        RobustnessError: if the format is none that models are run in, or numbers are complex or too
            large for it.
    """
    if dtype is None:
        own = _float_dtypes(model.parameters()) or _float_dtypes(model.buffers())
        return model, _converted(inputs, own.pop()) if len(own) == 1 else inputs
    floats = str(dtype).removeprefix("torch.")
    if dtype not in DTYPES.values():
        raise RobustnessError(f"certify: dtype is one of {', '.join(DTYPES)}, got {floats}.")
    if any(tensor.is_complex() for tensor in (*model.parameters(), *model.buffers())):
        raise RobustnessError(
            f"certify: {type(model).__name__} holds complex numbers, which no dtype converts."
        )
    largest = torch.finfo(dtype).max
    for name, tensor in (*model.named_parameters(), *model.named_buffers(), ("samples", inputs)):
        is_longer = tensor.is_floating_point() and torch.finfo(tensor.dtype).max > largest
        size = float(tensor.detach().abs().max()) if is_longer and tensor.numel() else 0.0
        if largest < size < math.inf:
            raise RobustnessError(
                f"certify: numbers up to {size:.6g} in {name}, and {floats} ends at {largest:.6g}."
            )
    return copy.deepcopy(model).to(dtype), _converted(inputs, dtype)


def _converted(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    return inputs.to(dtype) if inputs.is_floating_point() else inputs


def _float_dtypes(tensors: Iterable[Tensor]) -> set[torch.dtype]:
    return {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
