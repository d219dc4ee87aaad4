r"""Paraunitary filters from their factors.

A filter is a polynomial of matrices, :math:`H(z) = \sum_n h_n z^{-n}`; it preserves norms exactly
if :math:`H(e^{i\omega})` is unitary for all frequencies. With

.. math:: V(z; U) = I - U U^T + U U^T z, \qquad U^T U = I,

every product :math:`V(z; U_1) \cdots Q \cdots V(z^{-1}; U_2)` is such a filter, and in one
dimension every such filter is one (Vaidyanathan 1993, chapter 14, as recalled), if the number of
columns of the U is free. In two dimensions products of one filter along each axis are built here;
they are not all.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def cascade(rotation: Tensor, frames: Sequence[Tensor]) -> Tensor:
    """The taps (taps, groups, size, size) of Q with factors right, left, right, ….

    Args:
        rotation: Q, (groups, size, size).
        frames: orthonormal columns U, each (groups, size, columns): one less than there are taps.
    """
    taps = rotation[None]
    for number, frame in enumerate(frames):
        if number % 2 == 0:
            seen = (taps @ frame) @ frame.mT
            taps = _after(seen) + _before(taps - seen)
        else:
            seen = frame @ (frame.mT @ taps)
            taps = _after(taps - seen) + _before(seen)
    return taps


def separable(axes: Sequence[Tensor]) -> Tensor:
    """The kernel (groups, out, in, *taps) of one filter after the other, each along its own axis.

    One or two filters, each (taps, groups, out, in).
    """
    if len(axes) == 1:
        return axes[0].movedim(0, -1)
    first, second = axes
    return torch.einsum("hgrs,wgtr->gtshw", first, second)


def _before(taps: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(taps[:1]), taps])


def _after(taps: Tensor) -> Tensor:
    return torch.cat([taps, torch.zeros_like(taps[:1])])
