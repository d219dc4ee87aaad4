"""Second moments of inputs, summed batch by batch so that activations are never kept."""

import torch
from torch import Tensor

from rankscope.errors import CompressionError


class SecondMoments:
    r"""Sums of the outer products of vectors, in float64.

    .. math:: C = \tfrac{1}{n} \sum_{i=1}^{n} x_i x_i^T

    Args:
        size: of each vector.
        groups: how many kinds of vectors there are, each with moments of its own.

    Example:
        >>> moments = SecondMoments(2)
        >>> moments.add(torch.tensor([[[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]))
        >>> moments.mean().tolist()
        [[[3.0, 0.0], [0.0, 0.3333333333333333]]]
    """

    def __init__(self, size: int, groups: int = 1) -> None:
        self._sum = torch.zeros(groups, size, size, dtype=torch.float64)
        self._count = 0

    def add(self, vectors: Tensor) -> None:
        """Count (groups, count, size) vectors in."""
        exact = vectors.detach().to("cpu", torch.float64)
        self._sum.baddbmm_(exact.mT, exact)
        self._count += exact.shape[1]

    def mean(self) -> Tensor:
        """The second moments (groups, size, size)."""
        return self._sum / max(self._count, 1)

    def factor(self, ridge: float, *, who: str) -> Tensor | None:
        """Lower triangular L with L Lᵀ = C + ridge · tr(C)/size · I, for each group.

        The ridge is what makes it invertible where inputs span less than everything. None if
        nothing but zeros, or nothing at all, was seen by a group.

        Raises:
            CompressionError: if an input was NaN or infinite.
        """
        mean = self.mean()
        if not bool(torch.isfinite(mean).all()):
            raise CompressionError(
                f"Calibration: the {self._count:,} inputs of {who} hold NaN or infinite numbers; "
                "clean the data, or check the model's weights."
            )
        scale = mean.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
        if not bool((scale > 0).all()):
            return None
        identity = torch.eye(mean.shape[-1], dtype=mean.dtype)
        factor: Tensor = torch.linalg.cholesky(mean + ridge * scale[:, None, None] * identity)
        return factor
