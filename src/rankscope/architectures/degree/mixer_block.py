"""One block of an MLP-Mixer: its weights, its activations, its equations."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankscope.architectures.arithmetic import Arithmetic
from rankscope.architectures.sizes import require_sizes


class Activation(ABC):
    """What the hidden units of a mixer do to their inputs. Subclasses are frozen."""

    @abstractmethod
    def apply(self, numbers: Arithmetic, values: Tensor) -> Tensor:
        """The values, each by itself."""


@dataclass(frozen=True)
class Power(Activation):
    """A power: the mixer is a polynomial.

    Raises:
        SizeError: if the degree is not positive.
    """

    degree: int = 2

    def __post_init__(self) -> None:
        require_sizes("Power", degree=self.degree)

    def apply(self, numbers: Arithmetic, values: Tensor) -> Tensor:
        """Each value times itself, `degree` times in all."""
        found = values
        for _ in range(self.degree - 1):
            found = numbers.multiply(found, values)
        return found


@dataclass(frozen=True)
class Gelu(Activation):
    """The activation of the published mixers; for real numbers only."""

    def apply(self, numbers: Arithmetic, values: Tensor) -> Tensor:
        """Values times the normal distribution function."""
        del numbers
        return nn.functional.gelu(values)


class MixerBlock(nn.Module):
    r"""The weights of a block: a perceptron over the tokens, then one over the channels.

    .. math:: X' = X + U_2\, \sigma(U_1 X + b\,1^\top), \qquad
              Y = X' + \sigma(X' V_1^\top + 1\, c^\top) V_2^\top

    `token_in` U₁ is (token_hidden, tokens), `token_bias` b, `token_out` U₂ (tokens, token_hidden),
    `channel_in` V₁ (channel_hidden, width), `channel_bias` c, `channel_out` V₂.

    Reference:
        Tolstikhin et al. (2021), eq. (1), arXiv:2105.01601.
    """

    def __init__(
        self,
        *,
        num_tokens: int,
        width: int,
        token_hidden: int,
        channel_hidden: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()

        def drawn(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(
                torch.randn(rows, columns, generator=generator) / math.sqrt(2 * columns)
            )

        self.token_in = drawn(token_hidden, num_tokens)
        self.token_bias = nn.Parameter(torch.zeros(token_hidden))
        self.token_out = drawn(num_tokens, token_hidden)
        self.channel_in = drawn(channel_hidden, width)
        self.channel_bias = nn.Parameter(torch.zeros(channel_hidden))
        self.channel_out = drawn(width, channel_hidden)


def mix(
    numbers: Arithmetic,
    weights: Mapping[str, Tensor],
    prefix: str,
    tokens: Tensor,
    activation: Activation,
    normalizations: tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] | None = None,
) -> Tensor:
    """The tokens (batch, tokens, width) after a block.

    Args:
        numbers: the arithmetic.
        weights: by name.
        prefix: of the block's weights.
        tokens: (batch, tokens, width).
        activation: of the hidden units.
        normalizations: of what the two perceptrons read; None for none.
    """
    over_tokens, over_channels = normalizations or (_unchanged, _unchanged)
    hidden = numbers.contract("ht,btk->bhk", weights[f"{prefix}.token_in"], over_tokens(tokens))
    hidden = numbers.add(hidden, weights[f"{prefix}.token_bias"][:, None])
    hidden = activation.apply(numbers, hidden)
    mixed = numbers.contract("th,bhk->btk", weights[f"{prefix}.token_out"], hidden)
    tokens = numbers.add(tokens, mixed)
    hidden = numbers.contract("hk,btk->bth", weights[f"{prefix}.channel_in"], over_channels(tokens))
    hidden = numbers.add(hidden, weights[f"{prefix}.channel_bias"])
    hidden = activation.apply(numbers, hidden)
    mixed = numbers.contract("kh,bth->btk", weights[f"{prefix}.channel_out"], hidden)
    return numbers.add(tokens, mixed)


def _unchanged(tokens: Tensor) -> Tensor:
    return tokens
