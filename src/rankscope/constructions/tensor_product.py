"""Tensor products, pure tensors, and how pure tensors are recognized."""

from collections.abc import Sequence
from functools import reduce

import numpy
import torch
from torch import Tensor

from rankscope.errors import ConstructionError


def tensor_product(first: Tensor, second: Tensor) -> Tensor:
    r"""All products of an entry of one tensor and an entry of the other.

    .. math:: (S \otimes T)_{i_1 \dots i_n j_1 \dots j_m} = S_{i_1 \dots i_n} T_{j_1 \dots j_m}

    Associative, not commutative.

    Example:
        >>> tensor_product(torch.zeros(2, 3), torch.zeros(4)).shape
        torch.Size([2, 3, 4])

    Reference:
        Diehl (2023), "Building blocks of modern machine learning", section 1.2.
    """
    ones = (1,) * second.ndim
    return first.reshape(*first.shape, *ones) * second


def pure_tensor(vectors: Sequence[Tensor]) -> Tensor:
    """The tensor product of vectors.

    Raises:
        ConstructionError: if there is none, or one is no vector.
    """
    shapes = [tuple(vector.shape) for vector in vectors]
    if not vectors or any(len(shape) != 1 for shape in shapes):
        raise ConstructionError(f"pure_tensor takes one or more vectors, got shapes {shapes}.")
    return reduce(tensor_product, vectors)


def pure_factors(tensor: Tensor, *, tolerance: float = 1e-12) -> tuple[Tensor, ...] | None:
    """Vectors whose product the tensor is, or None if it is not pure.

    A pure tensor is the product of its fibres through any entry that is not zero, with the entry
    divided out; so the fibres through the largest entry are multiplied and compared.

    Args:
        tensor: of order one or more.
        tolerance: largest error of an entry, as a share of the largest entry.

    Raises:
        ConstructionError: if the tensor is a single number, or empty.
    """
    if not tensor.ndim or not tensor.numel():
        raise ConstructionError(
            f"pure_factors takes a tensor of order 1 or more with entries, got shape "
            f"{tuple(tensor.shape)}."
        )
    flat = int(tensor.abs().argmax())
    place = tuple(int(axis) for axis in numpy.unravel_index(flat, tensor.shape))
    largest = tensor[place]
    if not largest:
        return tuple(torch.zeros(size, dtype=tensor.dtype) for size in tensor.shape)
    fibres = [
        tensor.movedim(axis, -1)[place[:axis] + place[axis + 1 :]] for axis in range(tensor.ndim)
    ]
    factors = (fibres[0], *(fibre / largest for fibre in fibres[1:]))
    error = (pure_tensor(factors) - tensor).abs().max()
    return factors if error <= tolerance * largest.abs() else None
