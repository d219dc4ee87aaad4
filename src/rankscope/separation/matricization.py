"""Arrays seen as matrices."""

import math
from typing import Any, TypeVar

from rankscope.errors import PartitionError
from rankscope.separation.partition import Partition

# A NumPy array or a torch tensor: naming the types would import both libraries.
AnyArray = TypeVar("AnyArray")


def matricize(array: AnyArray, partition: Partition) -> AnyArray:
    r"""Lay an array out as a matrix, `partition.left` along the rows.

    .. math:: [A]_{I,J}, \qquad \text{row} = \sum_t j_{i_t} \prod_{s>t} M_{i_s}, \quad
              \text{column} = \sum_t j_{k_t} \prod_{s>t} M_{k_s}

    with the positions of each side ascending and the first one most significant; every position
    of the array must stand on a side.

    Args:
        array: a NumPy array or a torch tensor; the matrix is one of the same kind.
        partition: which positions run along the rows and which along the columns.

    Example:
        >>> import numpy
        >>> matricize(numpy.zeros((2, 3, 4, 5)), Partition.interleaved(4)).shape
        (8, 15)

    Raises:
        PartitionError: if the partition does not cover exactly the positions of the array.

    Reference:
        Cohen & Shashua (2017), Sec. 2, arXiv:1605.06743.
    """
    untyped: Any = array
    shape = tuple(untyped.shape)
    if partition.positions != tuple(range(len(shape))):
        raise PartitionError(
            f"matricize: the partition covers the positions {partition.positions}, but the array "
            f"has order {len(shape)} (shape {shape}). Index the array at the positions held fixed."
        )
    rows = math.prod(shape[position] for position in partition.left)
    columns = math.prod(shape[position] for position in partition.right)
    permuted = _permute(untyped, partition.left + partition.right)
    matrix: AnyArray = permuted.reshape(rows, columns)
    return matrix


def _permute(array: Any, positions: tuple[int, ...]) -> Any:
    # The two libraries give `transpose` different meanings; only torch has `permute`.
    return array.permute(positions) if hasattr(array, "permute") else array.transpose(positions)
