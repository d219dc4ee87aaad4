"""Networks of degree d to train, and attention of degree d."""

import math

import torch
from torch import Tensor, nn

from rankscope.errors import FunctionError, SizeError
from rankscope.rank.networks.degree import DegreePolynomial, ProductLayer, split_degree
from rankscope.rank.networks.network import Reals, Setting, require_sizes
from rankscope.rank.networks.self_attention import SelfAttention, attend, follow_chain

# --- Normalization that leaves a polynomial a polynomial ------------------------------------------


MOMENTUM = 0.1
_SMALLEST = 1e-12


class BatchScale(nn.Module):
    """Divide each feature by its root mean square over a batch.

    At inference the running mean square takes the place of the batch's, so that the division is by
    fixed numbers, `scales()`, which the neighbouring weights can absorb. Nothing is subtracted: a
    homogeneous layer stays homogeneous.

    Args:
        num_features: how many.
        position: where they stand in the inputs, counted from 1 after the batch.

    Example:
        >>> normalize = BatchScale(2)
        >>> normalize(torch.tensor([[3.0, 0.5], [3.0, -0.5]])).tolist()
        [[1.0, 1.0], [1.0, -1.0]]
    """

    mean_square: Tensor
    num_batches: Tensor

    def __init__(self, num_features: int, *, position: int = -1) -> None:
        super().__init__()
        self.position = position
        self.register_buffer("mean_square", torch.ones(num_features))
        self.register_buffer("num_batches", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs with mean squares of about 1, in each feature."""
        features = inputs.movedim(self.position, -1)
        if self.training:
            square = features.square().flatten(0, -2).mean(dim=0)
            self._remember(square.detach())
        else:
            square = self.mean_square
        return (features * square.clamp(min=_SMALLEST).rsqrt()).movedim(-1, self.position)

    def scales(self) -> Tensor:
        """The divisor of each feature at inference."""
        return self.mean_square.clamp(min=_SMALLEST).sqrt()

    def _remember(self, square: Tensor) -> None:
        # The first batches count as much as all before them: a plain mean has no start to forget.
        self.num_batches += 1
        share = max(MOMENTUM, 1 / int(self.num_batches))
        self.mean_square.lerp_(square, share)


# --- Fully connected networks of chosen degree, normalized so that deep ones can be trained -------


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
        activation: applied entry by entry after every normalization, such as `nn.GELU()`; the
            network is then no polynomial. None for none.

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
        activation: nn.Module | None = None,
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
        self.activation = nn.Identity() if activation is None else activation
        self.readout = nn.Linear(width, num_outputs)
        with torch.no_grad():
            drawn = torch.randn(num_outputs, width, generator=generator)
            self.readout.weight.copy_(drawn / math.sqrt(width))
            self.readout.bias.zero_()

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (batch, num_outputs) of inputs (batch, num_inputs)."""
        values = inputs
        for layer, scale in zip(self.layers, self.scales, strict=True):
            values = self.activation(scale(layer(values)))
        outputs: Tensor = self.readout(values)
        return outputs

    def polynomial(self, output: int = 0) -> DegreePolynomial:
        """One output at inference, in float64, the normalization in the weights.

        Raises:
            SizeError: if there is no such output.
            FunctionError: if the network has an activation.
        """
        if not isinstance(self.activation, nn.Identity):
            raise FunctionError(
                f"DegreeNetwork: with the activation {type(self.activation).__name__} it is no "
                f"polynomial; measure its epsilon rank instead."
            )
        if not 0 <= output < self.num_outputs:
            raise SizeError(
                f"DegreeNetwork: the output must lie in 0..{self.num_outputs - 1}, got {output}."
            )
        polynomial = DegreePolynomial(
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
        polynomial.load_state_dict({**state, "readout": readout, "constant": constant})
        return polynomial


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


# --- Softmax-free attention of odd degree, normalized so that deep ones can be trained ------------


class DegreeAttention(nn.Module):
    r"""The layers of a `SelfAttention`, each followed by a `BatchScale` of the token vectors.

    Degree 3 is multi-head attention, higher ones the chain W₀(G W₁)…(G W_s) X of degree 2s + 1 with
    G = XXᵗ; even degrees do not exist, as a chain of an even number of X is no array of tokens.
    Outputs are the first coordinates of the token at the output position. At inference each is
    exactly a `SelfAttention` with the normalization in its weights: `polynomial()`.

    Args:
        num_outputs: entries of the output, at most the width.
        generator: where the initial weights come from.
        settings: of `SelfAttention`.

    Example:
        >>> network = DegreeAttention(num_outputs=2, depth=2, width=4, num_tokens=6, degree=5)
        >>> network(torch.ones(3, 6, 4)).shape, network.polynomial(1).input_degree
        (torch.Size([3, 2]), 25)

    Raises:
        SizeError: if a size does not fit, or the degree is even.

    Reference:
        Navon (2021), eq. (2), as docs/separation_rank.md reads it.
    """

    def __init__(
        self,
        *,
        num_outputs: int = 1,
        generator: torch.Generator | None = None,
        **settings: Setting,
    ) -> None:
        super().__init__()
        self.core = SelfAttention(**settings, generator=generator)  # type: ignore[arg-type]
        require_sizes("DegreeAttention", num_outputs=num_outputs)
        if num_outputs > self.core.width:
            raise SizeError(
                f"DegreeAttention: outputs are coordinates of a token, at most {self.core.width}, "
                f"got {num_outputs}."
            )
        self.num_outputs = num_outputs
        self.scales = nn.ModuleList(BatchScale(self.core.width) for _ in self.core.layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (batch, num_outputs) of inputs (batch, num_tokens, input_size).

        Raises:
            SizeError: if the inputs have another shape.
        """
        core = self.core
        core.require_inputs(tuple(inputs.shape))
        weights = dict(core.named_parameters())
        tokens = inputs
        if core.embedding_rank is not None:
            tokens = tokens @ core.embedding.T
        if core.has_positions:
            tokens = tokens + core.positions
        layer = attend if core.degree == 3 else follow_chain
        for number, scale in enumerate(self.scales):
            tokens = scale(layer(Reals(), weights, f"layers.{number}", tokens))
        return tokens[:, core.output_position, : self.num_outputs]

    def polynomial(self, output: int = 0) -> SelfAttention:
        """One output at inference, in float64, the normalization in the weights.

        Raises:
            SizeError: if there is no such output.
        """
        if not 0 <= output < self.num_outputs:
            raise SizeError(
                f"DegreeAttention: the output must lie in 0..{self.num_outputs - 1}, got {output}."
            )
        polynomial = SelfAttention(**self.core.settings).double()  # type: ignore[arg-type]
        state = {name: value.detach().double() for name, value in self.core.named_parameters()}
        last = len(self.scales) - 1
        for number, scale in enumerate(self.scales):
            assert isinstance(scale, BatchScale)
            name = f"layers.{number}." + ("output" if self.core.degree == 3 else "factors.0")
            rows = scale.scales().double()
            state[name] = state[name] / rows.view(-1, *[1] * (state[name].ndim - 1))
            if number == last:  # the polynomial's output is coordinate 0
                state[name] = state[name].roll(-output, dims=0)
        polynomial.load_state_dict(state)
        return polynomial
