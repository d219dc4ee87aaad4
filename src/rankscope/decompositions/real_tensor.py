"""Tensors of real numbers from either library, checked and scaled."""

import numpy
from numpy.typing import NDArray
from torch import Tensor

from rankscope.decompositions.factors import Reals
from rankscope.errors import DecompositionError

RealTensor = NDArray[numpy.generic] | Tensor


def to_array(tensor: RealTensor, *, who: str) -> NDArray[numpy.generic]:
    """A NumPy array of finite reals or integers, of order 2 or more, in the precision it had.

    Raises:
        DecompositionError: if the tensor is anything else.
    """
    array = _from_torch(tensor, who) if isinstance(tensor, Tensor) else tensor
    if array.dtype.kind not in "fiu":
        raise DecompositionError(
            f"{who} needs real numbers, floating point or integer, got {array.dtype}."
        )
    if array.ndim < 2:
        raise DecompositionError(
            f"{who} needs a tensor of order 2 or more, got order {array.ndim} "
            f"(shape {array.shape})."
        )
    if array.size == 0:
        raise DecompositionError(f"{who} needs a tensor with entries, got shape {array.shape}.")
    num_bad = array.size - int(numpy.isfinite(array.astype(numpy.float64)).sum())
    if num_bad:
        raise DecompositionError(f"{who}: {num_bad} of {array.size} entries are not finite.")
    return array


def to_unit(array: NDArray[numpy.generic]) -> tuple[Reals, float]:
    """The array in float64 over its Frobenius norm, and that norm; zero stays as it is."""
    unit = array.astype(numpy.float64)
    largest = float(numpy.abs(unit).max())
    if largest == 0:
        return unit, 0.0
    # Dividing by the largest entry first keeps the squares from overflowing.
    unit = unit / largest
    norm = float(numpy.linalg.norm(unit))
    return unit / norm, largest * norm


def _from_torch(tensor: Tensor, who: str) -> NDArray[numpy.generic]:
    try:
        array: NDArray[numpy.generic] = tensor.detach().cpu().numpy()
    except TypeError as error:
        raise DecompositionError(
            f"{who} needs a number type that NumPy has, got {tensor.dtype}. Convert it first."
        ) from error
    return array
