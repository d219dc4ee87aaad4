"""The cores of least norm among all rings that stand for the same tensor.

A bond may be turned by any invertible matrix, G_k M and M⁻¹ G_{k+1}, and the tensor stays. Least
squares end anywhere among these, often with cores so large that they nearly cancel; a step of
training then changes the tensor by far more than it should. For one bond the best M is known: with
the singular values of the product shared by both sides, U √s and √s V^T. Bond after bond, the sum
of squared norms falls until it is the least.
"""

import torch
from torch import Tensor

from rankscope.decompositions.computing import frobenius_norm
from rankscope.decompositions.ring_descent import Ring

_MOST_SWEEPS = 100
# A sweep that lowers the sum of squared norms by less than this share is the last one.
_LEAST_GAIN = 1e-4


def least_norm_cores(ring: Ring) -> Ring:
    """The same tensor, from cores of the least sum of squared norms.

    A bond with room to spare stays as it is: both sides would become 0 there, and no training
    could use it any more.

    Example:
        >>> large = torch.tensor([[1e3]])
        >>> [round(float(core), 6) for core in least_norm_cores((large[None], 1 / large[None]))]
        [1.0, 1.0]
    """
    cores, before = list(ring), _size(ring)
    for _ in range(_MOST_SWEEPS):
        for place in range(len(cores)):
            after = (place + 1) % len(cores)
            cores[place], cores[after] = _shared(cores[place], cores[after])
        now = _size(cores)
        if not before - now > _LEAST_GAIN * before:
            break
        before = now
    return tuple(cores)


def _size(cores: Ring | list[Tensor]) -> float:
    return sum(frobenius_norm(core) ** 2 for core in cores)


def _shared(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Two neighbours, each with half of the singular values of their product."""
    bond = len(right)
    one, one_triangle = torch.linalg.qr(left.reshape(-1, bond))
    other, other_triangle = torch.linalg.qr(right.reshape(bond, -1).mT)
    vectors, values, others = torch.linalg.svd(one_triangle @ other_triangle.mT)
    rounding = bond * torch.finfo(values.dtype).eps * values[0]
    if len(values) < bond or not bool(values[-1] > rounding):
        return left, right
    roots = values.sqrt()
    return (
        (one @ (vectors * roots)).reshape(left.shape),
        (other @ (others.mT * roots)).mT.reshape(right.shape),
    )
