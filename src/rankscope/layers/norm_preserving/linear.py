"""Linear maps that preserve norms."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.errors import LayerError
from rankscope.layers.orthogonal.initialization import random_rotation
from rankscope.layers.orthogonal.kept_weight import KeptWeight, built_in_full_precision
from rankscope.layers.orthogonal.kernel import orthogonal_start, wide
from rankscope.layers.orthogonal.parametrizations import Cayley, Parametrization


class OrthogonalLinear(nn.Module):
    r"""A linear map with orthonormal columns (or rows, if there are fewer outputs than inputs).

    The weight is :math:`B\, F(X)\, R(S)`: a fixed random rotation B, a frame and a rotation within
    it, both the identity at the start. Lipschitz constant 1. With at least as many outputs as
    inputs norms are kept, and otherwise those of gradients.

    Args:
        in_features: length of an input.
        out_features: length of an output.
        bias: whether there is one; it starts at 0.
        parametrization: from free numbers to orthogonal matrices.
        generator: of the rotation that it starts from.

    Example:
        >>> layer, inputs = OrthogonalLinear(3, 5, bias=False), torch.randn(2, 3)
        >>> bool(torch.isclose(layer(inputs).norm(), inputs.norm()))
        True

    Raises:
        LayerError: if a size is below 1.
    """

    start: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        parametrization: Parametrization | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if min(in_features, out_features) < 1:
            raise LayerError(
                f"OrthogonalLinear: both sizes must be at least 1, got {in_features} inputs and "
                f"{out_features} outputs."
            )
        self.in_features, self.out_features = in_features, out_features
        self.parametrization = Cayley() if parametrization is None else parametrization
        size, columns = max(in_features, out_features), min(in_features, out_features)
        start = random_rotation(size, generator).to(torch.get_default_dtype())
        self.register_buffer("start", start)
        self.frame = nn.Parameter(torch.zeros(size - columns, columns))
        self.rotation = nn.Parameter(torch.zeros(columns, columns))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        self._kept = KeptWeight()

    def weight(self) -> Tensor:
        """(out_features, in_features), as `nn.Linear` would hold it; kept in evaluation."""
        if self.training or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._built()
        return self._kept.get((self.start, self.frame, self.rotation), self._built)

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, in_features) to (…, out_features)."""
        bias = None if self.bias is None else self.bias.to(inputs.dtype)
        return functional.linear(inputs, self.weight().to(inputs.dtype), bias)

    def to_linear(self) -> nn.Linear:
        """A plain linear layer with the weight as it is now."""
        weight = self.weight().detach().clone()
        plain = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None)
        plain.to(weight)
        with torch.no_grad():
            plain.weight.copy_(weight)
            if self.bias is not None:
                plain.bias.copy_(self.bias)
        return plain

    def extra_repr(self) -> str:
        """What a reader needs."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"

    def _built(self) -> Tensor:
        return built_in_full_precision(self._product, self.start.device)

    def _product(self) -> Tensor:
        rotation = self.parametrization.rotation(wide(self.rotation))
        tall = orthogonal_start(self.start) @ self.parametrization.frame(wide(self.frame))
        tall = tall @ rotation
        return tall if self.out_features >= self.in_features else tall.mT
