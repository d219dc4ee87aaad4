"""The completeness theorem at work: the factors of a given paraunitary filter."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.errors import LayerError


@dataclass(frozen=True, eq=False)
class ParaunitaryFactors:
    r"""A filter as :math:`V(z^{-1}; U_1) \cdots V(z^{-1}; U_m)\, Q`.

    Args:
        frames: the U, each (out, columns) with orthonormal columns; any number of them, also none.
        last: Q, (out, in) with orthonormal columns.
    """

    frames: tuple[Tensor, ...]
    last: Tensor

    def to_taps(self) -> Float[Tensor, "taps out in"]:
        """The filter again: one tap more than there are frames."""
        taps = self.last[None]
        for frame in reversed(self.frames):
            seen = frame @ (frame.mT @ taps)
            nothing = torch.zeros_like(taps[:1])
            taps = torch.cat([taps - seen, nothing]) + torch.cat([nothing, seen])
        return taps


def factor_paraunitary(
    taps: Float[Tensor, "taps out in"], *, tolerance: float = 1e-8
) -> ParaunitaryFactors:
    r"""Find the factors of a one-dimensional filter that preserves norms.

    The first and the last tap have orthogonal columns, :math:`h_0^T h_L = 0`. With U a basis of the
    columns of :math:`h_L`, the filter :math:`V(z; U) H(z)` has one tap less: its tap at -1 is
    :math:`U U^T h_0 = 0`, and the one at L is :math:`(I - U U^T) h_L = 0`.

    Args:
        taps: :math:`h_0, \dots, h_L`, with at least as many rows as columns.
        tolerance: largest deviation from norm preservation that counts as rounding; singular
            values of the last tap below it count as zero.

    Example:
        >>> haar = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[-1.0, 1.0], [1.0, -1.0]]]) / 2
        >>> [frame.shape[1] for frame in factor_paraunitary(haar.double()).frames]
        [1]

    Raises:
        LayerError: if the filter does not preserve norms; the message says by how much.

    Reference:
        Vaidyanathan (1993), Multirate Systems and Filter Banks, chapter 14 (as recalled).
    """
    rest = taps.double()
    if len(rest) == 0 or rest.shape[1] < rest.shape[2]:
        raise LayerError(
            f"factor_paraunitary: at least one tap and as many rows as columns are needed, got "
            f"{tuple(taps.shape)}. A wide filter is factored by its taps transposed and reversed."
        )
    deviation = paraunitary_deviation(rest)
    if not deviation <= tolerance:
        raise LayerError(
            f"factor_paraunitary: the filter does not preserve norms: it is off by "
            f"{deviation:.3g}, over the tolerance of {tolerance:.3g}."
        )
    frames = []
    while len(rest) > 1:
        left, values, _ = torch.linalg.svd(rest[-1], full_matrices=False)
        frame = left[:, values > tolerance]
        seen = frame @ (frame.mT @ rest)
        rest = (rest - seen)[:-1] + seen[1:]
        frames.append(frame)
    return ParaunitaryFactors(tuple(frames), rest[0])


def paraunitary_deviation(taps: Float[Tensor, "taps out in"]) -> float:
    r"""The largest entry of :math:`\sum_n h_n^T h_{n+m} - \delta_{m0} I` over all shifts m."""
    count, _, size = taps.shape
    shifted = [
        torch.einsum("nok,noj->kj", taps[: count - shift], taps[shift:]) for shift in range(count)
    ]
    shifted[0] = shifted[0] - torch.eye(size, dtype=taps.dtype, device=taps.device)
    return float(torch.stack(shifted).abs().max())
