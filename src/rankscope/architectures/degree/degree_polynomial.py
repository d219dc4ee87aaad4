"""Fully connected networks of mixed degrees as polynomials that are measured exactly."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Arithmetic
from rankscope.architectures.degree.degree_diagram import degree_diagram
from rankscope.architectures.degree.product_layer import ProductLayer, product_of_forms
from rankscope.architectures.network import PolynomialNetwork, Setting
from rankscope.architectures.sizes import require_sizes
from rankscope.bounds.total_degree import total_degree_upper_bound
from rankscope.diagrams.network import Network
from rankscope.errors import SizeError
from rankscope.separation.partition import Partition
from rankscope.theorem import UpperBound


class DegreePolynomial(PolynomialNetwork):
    r"""Layers of products of affine forms, and a linear readout.

    .. math:: y = c + \sum_o v_o\, (P_p \circ \dots \circ P_1)(x)_o

    With biases and the readout's constant at 0 and one coordinate read out it is a
    `ProductNetwork`; biases make it contain every lower degree too, so that networks of even and of
    odd degree can be compared.

    Args:
        num_inputs: scalar inputs, each one position.
        width: coordinates of every layer.
        degrees: of each layer.
        raised: for each layer, how many of its coordinates have one degree more; none if None.
        generator: where the initial weights come from.

    Example:
        >>> network = DegreePolynomial(num_inputs=4, width=5, degrees=(2, 3), raised=(1, 0))
        >>> network(torch.ones(7, 4, 1)).shape, network.input_degree
        (torch.Size([7]), 9)

    Raises:
        SizeError: if a size does not fit, or there are fewer than two inputs.

    Reference:
        Navon (2021), Comment 3.1 and Task 3.
    """

    family = "mixed-polynomial"

    def __init__(
        self,
        *,
        num_inputs: int,
        width: int,
        degrees: tuple[int, ...],
        raised: tuple[int, ...] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        extra = (0,) * len(degrees) if raised is None else raised
        require_sizes("DegreePolynomial", least=2, num_inputs=num_inputs)
        require_sizes("DegreePolynomial", width=width, number_of_layers=len(degrees))
        if len(extra) != len(degrees):
            raise SizeError(
                f"DegreePolynomial: {len(degrees)} layers need as many numbers of raised "
                f"coordinates, got {len(extra)}."
            )
        self.num_positions = num_inputs
        self.input_size = 1
        self.width, self.degrees, self.raised = width, degrees, extra
        self.layers = nn.ModuleList(
            ProductLayer(
                width if number else num_inputs,
                width,
                degree=degrees[number],
                raised=extra[number],
                generator=generator,
            )
            for number in range(len(degrees))
        )
        self.readout = nn.Parameter(torch.randn(width, generator=generator) / math.sqrt(width))
        self.constant = nn.Parameter(torch.zeros(1))

    @property
    def settings(self) -> dict[str, Setting]:
        return {
            "num_inputs": self.num_positions,
            "width": self.width,
            "degrees": self.degrees,
            "raised": self.raised,
        }

    @property
    def layer_degrees(self) -> tuple[int, ...]:
        """Of each layer as a polynomial."""
        pairs = zip(self.degrees, self.raised, strict=True)
        return tuple(degree + (raised > 0) for degree, raised in pairs)

    @property
    def weight_degree(self) -> int:
        found = 0
        for degree in self.layer_degrees:
            found = degree * (found + 1)
        return found + 1

    @property
    def input_degree(self) -> int:
        return math.prod(self.layer_degrees)

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        values = inputs[:, :, 0]
        for number, degree in enumerate(self.layer_degrees):
            forms, biases = (
                [weights[f"layers.{number}.{kind}.{place}"] for place in range(degree)]
                for kind in ("weights", "biases")
            )
            values = product_of_forms(numbers, values, forms, biases)
        return numbers.add(
            numbers.contract("bo,o->b", values, weights["readout"]), weights["constant"]
        )

    def upper_bound(self, partition: Partition) -> UpperBound:
        """By degree; a side counts for no more variables than the first layer takes from it."""
        self.require_covered(partition)
        forms = self.degrees[0] * self.width + self.raised[0]
        return total_degree_upper_bound(
            num_left=min(len(partition.left), forms),
            num_right=min(len(partition.right), forms),
            degree=self.input_degree,
        )

    def diagram(self) -> Network:
        """One step for every affine form and one or two for the products of every layer."""
        return degree_diagram(self.num_positions, self.width, self.degrees, self.raised)

    def with_fixed_inputs(self, inputs: Tensor, free: tuple[int, ...]) -> "DegreePolynomial":
        """The same function of some inputs, all others held at values (num_inputs,).

        The fixed inputs go into the biases of the first layer, so that ranks in few of many inputs
        can be measured exactly.

        Raises:
            SizeError: if there are other numbers of values, or fewer than two free inputs, or one
                that does not exist.
        """
        if inputs.shape != (self.num_positions,) or not set(free) < set(range(self.num_positions)):
            raise SizeError(
                f"DegreePolynomial: wanted values of {self.num_positions} inputs and some of them "
                f"free, got shape {tuple(inputs.shape)} and {free}."
            )
        found = DegreePolynomial(
            num_inputs=len(free), width=self.width, degrees=self.degrees, raised=self.raised
        )
        state = {name: value.detach() for name, value in self.named_parameters()}
        fixed = inputs.clone()
        fixed[list(free)] = 0
        for place in range(self.layer_degrees[0]):
            weight = state[f"layers.0.weights.{place}"]
            state[f"layers.0.biases.{place}"] = state[f"layers.0.biases.{place}"] + fixed @ weight
            state[f"layers.0.weights.{place}"] = weight[list(free)]
        found.to(self.readout.dtype).load_state_dict(state)
        return found
