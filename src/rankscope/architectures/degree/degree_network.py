"""Fully connected networks of chosen degree, normalized so that deep ones can be trained."""

import math

import torch
from torch import Tensor, nn

from rankscope.architectures.degree.batch_scale import BatchScale
from rankscope.architectures.degree.degree_polynomial import DegreePolynomial
from rankscope.architectures.degree.product_layer import ProductLayer, split_degree
from rankscope.architectures.sizes import require_sizes
from rankscope.errors import SizeError


class DegreeNetwork(nn.Module):
    r"""Product layers of real-valued degree, each followed by a `BatchScale`, and a linear readout.

    Every layer starts nearly linear and is normalized over the batch. At inference the
    normalization is a fixed scaling, so that each output is exactly the `polynomial()` that is
    measured: what is trained and what is certified are one function.

    Args:
        num_inputs: entries of the input.
        width: coordinates of every layer.
        degrees: of each layer, at least 1; at e, 72 % of the coordinates have degree 3 and the
            others 2.
        num_outputs: entries of the output.
        generator: where the initial weights come from.

    Example:
        >>> network = DegreeNetwork(num_inputs=4, width=16, degrees=(math.e,) * 2, num_outputs=3)
        >>> network(torch.ones(7, 4)).shape, network.polynomial().input_degree
        (torch.Size([7, 3]), 9)

    Raises:
        SizeError: if a size does not fit, or a degree is below 1.

    Reference:
        Navon (2021), Sec. 3 and Task 3.
    """

    def __init__(
        self,
        *,
        num_inputs: int,
        width: int,
        degrees: tuple[float, ...],
        num_outputs: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require_sizes(
            "DegreeNetwork",
            num_inputs=num_inputs,
            width=width,
            num_outputs=num_outputs,
            number_of_layers=len(degrees),
        )
        self.num_inputs, self.width, self.num_outputs = num_inputs, width, num_outputs
        self.split_degrees = tuple(split_degree(degree, width) for degree in degrees)
        self.layers = nn.ModuleList(
            ProductLayer(
                width if number else num_inputs,
                width,
                degree=degree,
                raised=raised,
                generator=generator,
            )
            for number, (degree, raised) in enumerate(self.split_degrees)
        )
        self.scales = nn.ModuleList(BatchScale(width) for _ in degrees)
        self.readout = nn.Linear(width, num_outputs)
        with torch.no_grad():
            drawn = torch.randn(num_outputs, width, generator=generator)
            self.readout.weight.copy_(drawn / math.sqrt(width))
            self.readout.bias.zero_()

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (batch, num_outputs) of inputs (batch, num_inputs)."""
        values = inputs
        for layer, scale in zip(self.layers, self.scales, strict=True):
            values = scale(layer(values))
        outputs: Tensor = self.readout(values)
        return outputs

    def polynomial(self, output: int = 0) -> DegreePolynomial:
        """One output at inference, in float64, the normalization in the weights.

        Raises:
            SizeError: if there is no such output.
        """
        if not 0 <= output < self.num_outputs:
            raise SizeError(
                f"DegreeNetwork: the output must lie in 0..{self.num_outputs - 1}, got {output}."
            )
        found = DegreePolynomial(
            num_inputs=self.num_inputs,
            width=self.width,
            degrees=tuple(degree for degree, _ in self.split_degrees),
            raised=tuple(raised for _, raised in self.split_degrees),
        ).double()
        state = {
            name: value.detach().double()
            for name, value in self.named_parameters()
            if name.startswith("layers.")
        }
        scales = [scale.scales().double() for scale in self.scales if isinstance(scale, BatchScale)]
        for number, scale in enumerate(scales[:-1], start=1):
            prefix = f"layers.{number}.weights."
            for name in [name for name in state if name.startswith(prefix)]:
                state[name] = state[name] / scale[:, None]
        readout = self.readout.weight[output].detach().double() / scales[-1]
        constant = self.readout.bias[output : output + 1].detach().double()
        found.load_state_dict({**state, "readout": readout, "constant": constant})
        return found


def widest_network(
    *, num_inputs: int, degrees: tuple[float, ...], num_outputs: int, num_parameters: int
) -> int:
    """The largest width at which a `DegreeNetwork` has at most so many parameters.

    Example:
        >>> widest_network(num_inputs=4, degrees=(2.0, 2.0), num_outputs=1, num_parameters=461)
        12

    Raises:
        SizeError: if even a width of 1 has more.
    """

    def count(width: int) -> int:
        total, into = 0, num_inputs
        for degree in degrees:
            low, raised = split_degree(degree, width)
            total += (low * width + raised) * (into + 1)
            into = width
        return total + num_outputs * (width + 1)

    if count(1) > num_parameters:
        raise SizeError(
            f"widest_network: width 1 has {count(1):,} parameters, more than the "
            f"{num_parameters:,} allowed. Allow more, or use fewer layers."
        )
    width = 1
    while count(width + 1) <= num_parameters:
        width += 1
    return width
