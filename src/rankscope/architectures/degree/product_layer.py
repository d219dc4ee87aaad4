"""One layer of real-valued degree: some coordinates are products of one more form than others."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Arithmetic, Reals
from rankscope.architectures.sizes import require_sizes
from rankscope.errors import SizeError

# Spread of the forms that multiply the first one, about their start at 1: a layer starts nearly
# linear, so that outputs of deep networks have no heavy tails before training.
START_SPREAD = 0.3


class ProductLayer(nn.Module):
    r"""Entry-wise products of affine forms, δ or δ + 1 of them.

    .. math:: P(x)_o = \prod_{k=1}^{\delta_o} (x W_k + b_k)_o

    The first `raised` coordinates have degree δ + 1, the others δ. `weights.k` is (inputs, outputs)
    with one column for each coordinate that has a form k, `biases.k` (outputs,).

    Args:
        num_inputs: entries of x.
        num_outputs: coordinates.
        degree: δ.
        raised: how many coordinates have one form more, less than all.
        generator: where the initial weights come from.

    Example:
        >>> layer = ProductLayer(4, 5, degree=2, raised=3)
        >>> layer(torch.ones(7, 4)).shape, layer.largest_degree, layer.num_matrices
        (torch.Size([7, 5]), 3, 2.6)

    Raises:
        SizeError: if a size is not positive, or `raised` not in 0..num_outputs - 1.
    """

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        *,
        degree: int,
        raised: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require_sizes("ProductLayer", num_inputs=num_inputs, num_outputs=num_outputs, degree=degree)
        if not 0 <= raised < num_outputs:
            raise SizeError(
                f"ProductLayer: raised must lie in 0..{num_outputs - 1}, got {raised}; for all "
                f"{num_outputs} coordinates, raise the degree."
            )
        self.degree, self.raised, self.num_outputs = degree, raised, num_outputs
        widths = [num_outputs] * degree + [raised] * (raised > 0)
        spreads = [1.0] + [START_SPREAD] * (len(widths) - 1)
        self.weights = nn.ParameterList(
            torch.randn(num_inputs, width, generator=generator) * spread / math.sqrt(num_inputs)
            for width, spread in zip(widths, spreads, strict=True)
        )
        self.biases = nn.ParameterList(
            torch.full((width,), float(place > 0)) for place, width in enumerate(widths)
        )

    @property
    def largest_degree(self) -> int:
        """The degree of the layer as a polynomial."""
        return self.degree + (self.raised > 0)

    @property
    def num_matrices(self) -> float:
        """The average degree of a coordinate, which is what the layer costs."""
        return self.degree + self.raised / self.num_outputs

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (batch, num_outputs) of inputs (batch, num_inputs)."""
        return product_of_forms(Reals(), inputs, list(self.weights), list(self.biases))


def product_of_forms(
    numbers: Arithmetic, inputs: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> Tensor:
    """The values of a `ProductLayer`; a form narrower than the first is of the first coordinates.

    Example:
        >>> weights, biases = [torch.eye(2), torch.eye(2)[:, :1]], [torch.zeros(2), torch.zeros(1)]
        >>> product_of_forms(Reals(), torch.tensor([[3.0, 5.0]]), weights, biases)
        tensor([[9., 5.]])
    """
    # One product for all forms: small layers are bound by the number of operations.
    columns = numbers.contract("bi,io->bo", inputs, torch.cat(tuple(weights), dim=1))
    joined = numbers.add(columns, torch.cat(tuple(biases)))
    forms = torch.split(joined, [weight.shape[1] for weight in weights], dim=1)
    found: Tensor = forms[0]
    for form in forms[1:]:
        width = form.shape[1]
        product = numbers.multiply(found[:, :width], form)
        found = torch.cat([product, found[:, width:]], dim=1) if width < found.shape[1] else product
    return found


def split_degree(degree: float, width: int) -> tuple[int, int]:
    """A real degree as (δ, raised): an average over the coordinates, as near as they allow.

    Example:
        >>> split_degree(3.0, 10), split_degree(math.e, 10), split_degree(2.99, 10)
        ((3, 0), (2, 7), (3, 0))

    Raises:
        SizeError: if the degree is below 1 or not finite.
    """
    require_sizes("split_degree", width=width)
    if not 1 <= degree < math.inf:
        raise SizeError(f"split_degree: the degree must be finite and at least 1, got {degree}.")
    low, raised = divmod(round(degree * width), width)
    return low, raised
