"""Tensors as decompositions compute with them: checked, scaled, and precise enough."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rankscope.decompositions.truncation import RelativeError, Truncation
from rankscope.errors import DecompositionError

# Larger tensors are computed in float32, to save memory and time.
MAX_DOUBLE_ENTRIES = 2**21
# Errors that float32 cannot promise.
_LEAST_SINGLE_ERROR = 1e-4
# How many units of rounding a product of orthonormal factors may be off by.
_ROUNDINGS = 64


@dataclass(frozen=True, eq=False)
class Scaled:
    """A tensor over its largest absolute value, so that no square over- or underflows.

    Args:
        unit: float64 or float32, detached.
        scale: what it was divided by; 1 if it is 0.
    """

    unit: Tensor
    scale: float

    def relative_error(self, approximation: Tensor) -> float:
        """The Frobenius norm of what is missing over that of the tensor, entry by entry.

        Args:
            approximation: of `unit`.
        """
        whole = frobenius_norm(self.unit)
        return frobenius_norm(self.unit - approximation) / whole if whole else 0.0

    def allowed(self, error: float) -> float:
        """The squared Frobenius norm that may be left out for a relative error.

        What rounding will add is taken off.
        """
        rounding = _ROUNDINGS * torch.finfo(self.unit.dtype).eps
        return max(0.0, error**2 - rounding**2) * frobenius_norm(self.unit) ** 2


def frobenius_norm(tensor: Tensor) -> float:
    """The root of the sum of squares."""
    return float(torch.linalg.vector_norm(tensor))


def to_scaled(tensor: Tensor, truncation: Truncation, *, who: str, least_order: int = 1) -> Scaled:
    """Check a tensor and bring it into the dtype to compute in.

    That is float64; float32 above 2,097,152 entries, unless an error below 0.0001 is asked for.

    Raises:
        DecompositionError: if it is not a tensor of finite real floating-point numbers.
    """
    _require_real(tensor, who, least_order)
    precise = isinstance(truncation, RelativeError) and truncation.error < _LEAST_SINGLE_ERROR
    double = precise or tensor.numel() <= MAX_DOUBLE_ENTRIES
    whole = tensor.detach().to(torch.float64 if double else torch.float32)
    largest = float(whole.abs().max())
    if not math.isfinite(largest):
        raise DecompositionError(_where_not_finite(whole, who))
    return Scaled(whole / largest, largest) if largest else Scaled(whole, 1.0)


def _require_real(tensor: Tensor, who: str, least_order: int) -> None:
    if not tensor.dtype.is_floating_point:
        raise DecompositionError(
            f"{who} needs real floating-point numbers, got {tensor.dtype}. Convert it first."
        )
    if tensor.ndim < least_order:
        raise DecompositionError(
            f"{who} needs a tensor of order {least_order} or more, got order {tensor.ndim} "
            f"(shape {tuple(tensor.shape)})."
        )
    if tensor.numel() == 0:
        raise DecompositionError(
            f"{who} needs a tensor with entries, got shape {tuple(tensor.shape)}."
        )


def _where_not_finite(tensor: Tensor, who: str) -> str:
    bad = (~tensor.isfinite()).nonzero()
    first = tuple(bad[0].tolist())
    return (
        f"{who}: {len(bad):,} of {tensor.numel():,} entries are not finite, "
        f"the first one ({float(tensor[first])}) at {first}."
    )
