"""Networks of degree d as polynomials, and the layers they are made of."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Body, Network, Step, Sum, Term
from rankscope.diagrams.parts import Index, IndexKind, Node, Role
from rankscope.errors import SizeError
from rankscope.rank.bounds.counting import total_degree_upper_bound
from rankscope.rank.networks.network import (
    Arithmetic,
    PolynomialNetwork,
    Reals,
    Setting,
    require_sizes,
)
from rankscope.rank.partition import Partition
from rankscope.theorem import UpperBound

# --- A network of mixed degrees as a tensor diagram -----------------------------------------------


@dataclass(frozen=True)
class _Part:
    """Coordinates start..stop of a layer's values, which one step computes."""

    step: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def degree_diagram(
    num_inputs: int, width: int, degrees: tuple[int, ...], raised: tuple[int, ...]
) -> Network:
    """Draw a `DegreePolynomial` for one input (num_inputs,); its value is the output."""
    steps: list[Step] = []
    parts = [_Part("inputs", 0, num_inputs)]
    for number, (degree, extra) in enumerate(zip(degrees, raised, strict=True)):
        prefix = f"layers.{number}"
        for place in range(degree + (extra > 0)):
            size = width if place < degree else extra
            form = _affine(f"{prefix}.weights.{place}", f"{prefix}.biases.{place}", parts, size)
            label = rf"\mathbf{{f}}^{{{number + 1}}}_{{{place + 1}}}"
            steps.append(Step(f"form{number + 1}_{place + 1}", form, label))
        products = _products(number + 1, degree, width, extra)
        steps += [step for step, _ in products]
        parts = [part for _, part in products]
    steps.append(Step("y", _affine("readout", "constant", parts, None), "y"))
    average = sum(degree + extra / width for degree, extra in zip(degrees, raised, strict=True))
    title = f"Product network of {len(degrees)} layers, average degree {average / len(degrees):.3g}"
    return Network("mixed-polynomial", tuple(steps), title)


def _affine(weight: str, bias: str, parts: list[_Part], size: int | None) -> Body:
    """A map of all parts, and a bias; a number if there is no size."""
    held = () if size is None else ("o",)
    outputs = tuple(_feature(name, size) for name in held)
    terms = [Term(_map(weight, part, held, outputs)) for part in parts]
    constant = Diagram("bias", outputs, (Node("b", held, array=bias),), held)
    return Sum("form", (*terms, Term(constant)))


def _map(weight: str, part: _Part, held: tuple[str, ...], outputs: tuple[Index, ...]) -> Diagram:
    nodes = (
        Node("W", ("i", *held), array=weight, rows=(part.start, part.stop)),
        Node("x", ("i",), Role.DATA, r"\mathbf{x}", array=part.step),
    )
    return Diagram("map", (_feature("i", part.size), *outputs), nodes, held)


def _products(layer: int, degree: int, width: int, raised: int) -> list[tuple[Step, _Part]]:
    """The coordinates of higher degree first, if there are any."""
    parts = [_Part(f"x{layer}", 0, width)]
    if raised:
        parts = [_Part(f"x{layer}high", 0, raised), _Part(f"x{layer}low", raised, width)]
    steps = []
    for part in parts:
        is_high = raised > 0 and part.start == 0
        nodes = tuple(
            Node(
                f"f{place}",
                ("o",),
                Role.DATA,
                rf"\mathbf{{f}}^{{{layer}}}_{{{place}}}",
                array=f"form{layer}_{place}",
                rows=(part.start, part.stop),
            )
            for place in range(1, degree + 1 + is_high)
        )
        product = Diagram("product", (_feature("o", part.size),), nodes, ("o",))
        steps.append((Step(part.step, product, rf"\mathbf{{x}}^{{{layer}}}"), part))
    return steps


def _feature(name: str, size: int | None) -> Index:
    return Index(name, size, kind=IndexKind.FEATURE)


# --- One layer of real-valued degree: some coordinates are products of one more form than others


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
        >>> layer(torch.ones(7, 4)).shape, [tuple(weight.shape) for weight in layer.weights]
        (torch.Size([7, 5]), [(4, 5), (4, 5), (4, 3)])

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
    values: Tensor = forms[0]
    for form in forms[1:]:
        width = form.shape[1]
        product = numbers.multiply(values[:, :width], form)
        values = (
            torch.cat([product, values[:, width:]], dim=1) if width < values.shape[1] else product
        )
    return values


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


# --- Fully connected networks of mixed degrees as polynomials that are measured exactly -----------


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
        """Degree of each layer as a polynomial."""
        pairs = zip(self.degrees, self.raised, strict=True)
        return tuple(degree + (raised > 0) for degree, raised in pairs)

    @property
    def weight_degree(self) -> int:
        total = 0
        for degree in self.layer_degrees:
            total = degree * (total + 1)
        return total + 1

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
        """Bound by degree; a side counts for no more variables than the first layer reads of it."""
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
        restricted = DegreePolynomial(
            num_inputs=len(free), width=self.width, degrees=self.degrees, raised=self.raised
        )
        state = {name: value.detach() for name, value in self.named_parameters()}
        fixed = inputs.clone()
        fixed[list(free)] = 0
        for place in range(self.layer_degrees[0]):
            weight = state[f"layers.0.weights.{place}"]
            state[f"layers.0.biases.{place}"] = state[f"layers.0.biases.{place}"] + fixed @ weight
            state[f"layers.0.weights.{place}"] = weight[list(free)]
        restricted.to(self.readout.dtype).load_state_dict(state)
        return restricted
