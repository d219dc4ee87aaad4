"""MLP-Mixers with a power as activation: polynomials that are measured exactly."""

import math
from collections.abc import Mapping
from dataclasses import asdict

import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Arithmetic
from rankscope.architectures.degree.mixer_block import MixerBlock, Power, mix
from rankscope.architectures.degree.mixer_diagram import mixer_diagram
from rankscope.architectures.degree.mixer_sizes import MixerSizes
from rankscope.architectures.network import PolynomialNetwork, Setting
from rankscope.architectures.sizes import require_sizes
from rankscope.bounds.total_degree import total_degree_upper_bound
from rankscope.diagrams.network import Network
from rankscope.separation.partition import Partition
from rankscope.theorem import UpperBound


class PolynomialMixer(PolynomialNetwork):
    r"""An embedding, mixer blocks with σ(u) = u^δ, and a readout of the sum over all tokens.

    Every block has degree δ², one factor for each of its two perceptrons: with δ = 2 it is the
    degree 4 of two layers of degree 2, not that of an attention layer.

    Args:
        num_tokens: see `MixerSizes`.
        input_size: see `MixerSizes`.
        width: see `MixerSizes`.
        token_hidden: see `MixerSizes`.
        channel_hidden: see `MixerSizes`.
        depth: see `MixerSizes`.
        degree: δ.
        generator: where the initial weights come from.

    Example:
        >>> network = PolynomialMixer(
        ...     num_tokens=4, input_size=2, width=3, token_hidden=5, channel_hidden=6, depth=2
        ... )
        >>> network(torch.ones(7, 4, 2)).shape, network.input_degree
        (torch.Size([7]), 16)

    Raises:
        SizeError: if a size does not fit.

    Reference:
        Tolstikhin et al. (2021), arXiv:2105.01601; Navon (2021), Task 4.
    """

    family = "mixer"

    def __init__(  # noqa: PLR0913 - a certificate names each of these
        self,
        *,
        num_tokens: int,
        input_size: int,
        width: int,
        token_hidden: int,
        channel_hidden: int,
        depth: int,
        degree: int = 2,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require_sizes("PolynomialMixer", degree=degree)
        self.sizes = MixerSizes(num_tokens, input_size, width, token_hidden, channel_hidden, depth)
        self.activation = Power(degree)
        self.num_positions, self.input_size = num_tokens, input_size
        self.embedding = nn.Parameter(
            torch.randn(width, input_size, generator=generator) / math.sqrt(input_size)
        )
        self.blocks = nn.ModuleList(
            MixerBlock(
                num_tokens=num_tokens,
                width=width,
                token_hidden=token_hidden,
                channel_hidden=channel_hidden,
                generator=generator,
            )
            for _ in range(depth)
        )
        self.readout = nn.Parameter(torch.randn(width, generator=generator) / math.sqrt(width))
        self.constant = nn.Parameter(torch.zeros(1))

    @property
    def settings(self) -> dict[str, Setting]:
        return {**asdict(self.sizes), "degree": self.activation.degree}

    @property
    def weight_degree(self) -> int:
        found = 1
        for _ in range(2 * self.sizes.depth):
            found = self.activation.degree * (found + 1) + 1
        return found + 1

    @property
    def input_degree(self) -> int:
        return int(self.activation.degree ** (2 * self.sizes.depth))

    def compute(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        tokens = numbers.contract("kr,btr->btk", weights["embedding"], inputs)
        for number in range(self.sizes.depth):
            tokens = mix(numbers, weights, f"blocks.{number}", tokens, self.activation)
        read = numbers.contract("btk,k->bt", tokens, weights["readout"])
        ones = torch.ones(read.shape[1], dtype=read.dtype, device=read.device)
        return numbers.add(numbers.contract("bt,t->b", read, ones), weights["constant"])

    def upper_bound(self, partition: Partition) -> UpperBound:
        """By degree, in as many variables as the embedding keeps of each side."""
        self.require_covered(partition)
        kept = min(self.input_size, self.sizes.width)
        return total_degree_upper_bound(
            num_left=kept * len(partition.left),
            num_right=kept * len(partition.right),
            degree=self.input_degree,
        )

    def diagram(self) -> Network:
        """Four steps for each block, on the array `x` (num_tokens, input_size)."""
        return mixer_diagram(self.sizes, self.activation)
