"""A last layer whose classes all have a direction of length 1."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import LayerError


class NormalizedLinear(nn.Module):
    r"""A linear map whose rows have length 1: each output alone has Lipschitz constant 1.

    The outputs together do not: their constant is the largest singular value of the weight,
    between 1 and the root of their number. A class y is safe within
    :math:`\min_i (f_y - f_i) / \lVert w_y - w_i \rVert` of the features.

    Args:
        in_features: length of an input.
        out_features: length of an output.
        bias: whether there is one; it starts at 0.

    Raises:
        LayerError: if a size is below 1.

    Reference:
        Singla, Singla & Feizi (2022), arXiv:2108.04062.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        if min(in_features, out_features) < 1:
            raise LayerError(
                f"NormalizedLinear: both sizes must be at least 1, got {in_features} inputs and "
                f"{out_features} outputs."
            )
        self.in_features, self.out_features = in_features, out_features
        self.directions = nn.Parameter(torch.randn(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def weight(self) -> Tensor:
        """(out_features, in_features), as `nn.Linear` would hold it."""
        return functional.normalize(self.directions, dim=1, eps=0.0)

    @property
    def lipschitz_constant(self) -> float:
        """Of all outputs together: the largest singular value, in float64."""
        return float(torch.linalg.matrix_norm(self.weight().detach().double(), 2))

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, in_features) to (…, out_features)."""
        return functional.linear(inputs, self.weight(), self.bias)

    def extra_repr(self) -> str:
        """What a reader needs."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"
