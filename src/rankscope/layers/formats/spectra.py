"""What is lost when a matrix is truncated, at every rank at once."""

import torch
from torch import Tensor

from rankscope.decompositions.computing import to_scaled
from rankscope.decompositions.truncation import MaxBond


def tails(matrix: Tensor) -> Tensor:
    """The relative Frobenius error of the best approximation of each rank, from 0 to full.

    Example:
        >>> tails(torch.diag(torch.tensor([3.0, 4.0]))).round(decimals=3)
        tensor([1.0000, 0.6000, 0.0000], dtype=torch.float64)

    Raises:
        DecompositionError: if an entry is not finite.

    Reference:
        Eckart & Young (1936), doi:10.1007/BF02288367.
    """
    unit = to_scaled(matrix, MaxBond(1), who="tails", least_order=2).unit
    tall = unit if unit.shape[0] >= unit.shape[1] else unit.mT
    # The triangle has the same singular values; an elongated matrix is thus faster.
    values = torch.linalg.svdvals(torch.linalg.qr(tall, mode="r").R)
    return share_left(values.double().square())


def share_left(energies: Tensor) -> Tensor:
    """The root of what is left of a sum of squares after its first 0, 1, 2, ... summands."""
    left = torch.cat([energies.flip(0).cumsum(0).flip(0), energies.new_zeros(1)])
    return (left / left[0].clamp_min(torch.finfo(left.dtype).tiny)).sqrt()
