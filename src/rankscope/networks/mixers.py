"""MLP-Mixers to be trained, with GELU or with a power as activation."""

import math
from dataclasses import asdict

import torch
from torch import Tensor, nn

from rankscope.diagrams.network import Network
from rankscope.errors import SizeError, UnsupportedModuleError
from rankscope.networks.degree import BatchScale
from rankscope.rank.networks.mixer import (
    Activation,
    Gelu,
    MixerBlock,
    MixerSizes,
    PolynomialMixer,
    Power,
    mix,
    mixer_diagram,
)
from rankscope.rank.networks.network import Reals, require_sizes

GELU = Gelu()


class MlpMixer(nn.Module):
    """Perceptrons over tokens and over channels in turns, each reading normalized tokens.

    The normalizations are `BatchScale`s: one factor for each token in front of the perceptron over
    tokens, one for each channel in front of the other, so that the weights can absorb them at
    inference. With `Power` every output is then exactly a `PolynomialMixer`, `polynomial()`. With
    `Gelu` the rank is not finite; measure `separation_rank(mixer, partition, inputs=data,
    options=FunctionOptions(output=0))` on data instead.

    Args:
        sizes: how large.
        num_outputs: entries of the output.
        activation: of the hidden units.
        generator: where the initial weights come from.

    Example:
        >>> sizes = MixerSizes(4, 2, 3, token_hidden=5, channel_hidden=6, depth=2)
        >>> MlpMixer(sizes, num_outputs=10)(torch.ones(7, 4, 2)).shape
        torch.Size([7, 10])

    Raises:
        SizeError: if there is no output.

    Reference:
        Tolstikhin et al. (2021), arXiv:2105.01601, with layer normalization replaced.
    """

    def __init__(
        self,
        sizes: MixerSizes,
        *,
        num_outputs: int = 1,
        activation: Activation = GELU,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require_sizes("MlpMixer", num_outputs=num_outputs)
        self.sizes, self.num_outputs, self.activation = sizes, num_outputs, activation
        self.embedding = nn.Parameter(
            torch.randn(sizes.width, sizes.input_size, generator=generator)
            / math.sqrt(sizes.input_size)
        )
        self.blocks = nn.ModuleList(
            MixerBlock(
                num_tokens=sizes.num_tokens,
                width=sizes.width,
                token_hidden=sizes.token_hidden,
                channel_hidden=sizes.channel_hidden,
                generator=generator,
            )
            for _ in range(sizes.depth)
        )
        self.token_scales = nn.ModuleList(
            BatchScale(sizes.num_tokens, position=1) for _ in range(sizes.depth)
        )
        self.channel_scales = nn.ModuleList(BatchScale(sizes.width) for _ in range(sizes.depth))
        self.readout = nn.Linear(sizes.width, num_outputs)
        with torch.no_grad():
            drawn = torch.randn(num_outputs, sizes.width, generator=generator)
            self.readout.weight.copy_(drawn / math.sqrt(sizes.width))
            self.readout.bias.zero_()

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (batch, num_outputs) of inputs (batch, num_tokens, input_size)."""
        tokens = inputs @ self.embedding.T
        weights = dict(self.blocks.named_parameters(prefix="blocks"))
        scales = zip(self.token_scales, self.channel_scales, strict=True)
        for number, pair in enumerate(scales):
            tokens = mix(Reals(), weights, f"blocks.{number}", tokens, self.activation, pair)
        outputs: Tensor = self.readout(tokens.mean(dim=1))
        return outputs

    def polynomial(self, output: int = 0) -> PolynomialMixer:
        """One output at inference, in float64, normalization and mean in the weights.

        Raises:
            SizeError: if there is no such output.
            UnsupportedModuleError: if the activation is no power.
        """
        if not 0 <= output < self.num_outputs:
            raise SizeError(
                f"MlpMixer: the output must lie in 0..{self.num_outputs - 1}, got {output}."
            )
        if not isinstance(self.activation, Power):
            raise UnsupportedModuleError(
                f"MlpMixer: an exact rank needs the activation Power(degree), got "
                f"{self.activation}. Use separation_rank(mixer, …) on data."
            )
        polynomial = PolynomialMixer(**asdict(self.sizes), degree=self.activation.degree).double()
        state = {name: value.detach().double() for name, value in self.named_parameters()}
        for number in range(self.sizes.depth):
            for side, scales in (("token", self.token_scales), ("channel", self.channel_scales)):
                scale = scales[number]
                assert isinstance(scale, BatchScale)
                name = f"blocks.{number}.{side}_in"
                state[name] = state[name] / scale.scales().double()
        weight, constant = state.pop("readout.weight"), state.pop("readout.bias")
        state["readout"] = weight[output] / self.sizes.num_tokens
        state["constant"] = constant[output : output + 1]
        polynomial.load_state_dict(state)
        return polynomial

    def diagram(self) -> Network:
        """One output at inference; arrays are named as those of a `PolynomialMixer`."""
        return mixer_diagram(self.sizes, self.activation)
