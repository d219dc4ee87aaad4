"""Mixers as polynomials, and the blocks they are made of."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from rankscope.diagrams.diagram import Diagram
from rankscope.diagrams.network import Network, Step, Sum, Term
from rankscope.diagrams.parts import Function, Index, IndexKind, Node, Region, Role
from rankscope.rank.bounds.counting import total_degree_upper_bound
from rankscope.rank.networks.network import Arithmetic, PolynomialNetwork, Setting, require_sizes
from rankscope.rank.partition import Partition
from rankscope.theorem import UpperBound

# --- One block of an MLP-Mixer: its weights, its activations, its equations -----------------------


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
        power = values
        for _ in range(self.degree - 1):
            power = numbers.multiply(power, values)
        return power


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


# --- The sizes of an MLP-Mixer, shared by the one that is trained and the one that is measured ----


@dataclass(frozen=True)
class MixerSizes:
    """Sizes of a mixer.

    Args:
        num_tokens: inputs (patches of an image).
        input_size: entries of an input vector.
        width: channels.
        token_hidden: hidden units of the perceptron over tokens.
        channel_hidden: hidden units of the perceptron over channels.
        depth: blocks.

    Raises:
        SizeError: if a size is not positive, or there are fewer than two tokens.
    """

    num_tokens: int
    input_size: int
    width: int
    token_hidden: int
    channel_hidden: int
    depth: int

    def __post_init__(self) -> None:
        require_sizes("MixerSizes", least=2, num_tokens=self.num_tokens)
        require_sizes(
            "MixerSizes",
            input_size=self.input_size,
            width=self.width,
            token_hidden=self.token_hidden,
            channel_hidden=self.channel_hidden,
            depth=self.depth,
        )


# --- An MLP-Mixer as a tensor diagram: the hidden units of each perceptron, then its sum ----------


INPUTS = "x"


def mixer_diagram(sizes: MixerSizes, activation: Activation) -> Network:
    """Draw a mixer for one input (num_tokens, input_size); its value is the output."""
    embedding = Diagram(
        "tokens",
        (*_legs(sizes, "tk"), Index("r", sizes.input_size, "R", IndexKind.FEATURE)),
        (Node("E", ("k", "r"), array="embedding"), _data(INPUTS, "tr")),
        ("t", "k"),
    )
    steps = [Step("tokens0", embedding, r"\mathbf{X}_{0}")]
    for number in range(sizes.depth):
        for place, (side, legs) in enumerate((("token", "hk"), ("channel", "tg"))):
            at = 2 * number + place
            prefix = f"blocks.{number}.{side}"
            hidden = _hidden(sizes, prefix, f"tokens{at}", legs)
            steps.append(Step(f"hidden{at + 1}", hidden, rf"\mathbf{{H}}_{{{at + 1}}}"))
            added = _residual(sizes, prefix, at, legs, activation)
            steps.append(Step(f"tokens{at + 1}", added, rf"\mathbf{{X}}_{{{at + 1}}}"))
    steps.append(Step("y", _readout(sizes), "y"))
    return Network("mixer", tuple(steps), f"MLP-Mixer of {sizes.depth} blocks")


def _hidden(sizes: MixerSizes, prefix: str, source: str, legs: str) -> Sum:
    """U₁X or XV₁ᵗ and a bias, which is the same for all that is not mixed."""
    is_token = legs == "hk"
    unit, other = ("h", "k") if is_token else ("g", "t")
    weight = Node("W", (unit, "t" if is_token else "k"), array=f"{prefix}_in")
    mapped = Diagram("map", _legs(sizes, f"tk{unit}"), (weight, _data(source, "tk")), tuple(legs))
    bias = Node("b", (unit,), array=f"{prefix}_bias")
    ones = Node("ones", (other,), Role.CONSTANT, r"\mathbf{1}")
    constant = Diagram("bias", _legs(sizes, legs), (bias, ones), tuple(legs))
    return Sum("hidden", (Term(mapped), Term(constant)))


def _residual(sizes: MixerSizes, prefix: str, at: int, legs: str, activation: Activation) -> Sum:
    """The tokens and what the hidden units add to them."""
    unit, out = ("h", "t") if legs == "hk" else ("g", "k")
    count = activation.degree if isinstance(activation, Power) else 1
    hidden = tuple(
        Node(f"H{k}", tuple(legs), Role.DATA, r"\mathbf{H}", array=f"hidden{at + 1}")
        for k in range(count)
    )
    regions = () if isinstance(activation, Power) else (Region("S", ("H0",), Function("gelu")),)
    weight = Node("W", (out, unit), array=f"{prefix}_out")
    added = Diagram(
        "mixed", _legs(sizes, f"tk{unit}"), (*hidden, weight), ("t", "k"), regions=regions
    )
    source = f"tokens{at}"
    kept = Diagram("kept", _legs(sizes, "tk"), (_data(source, "tk"),), ("t", "k"))
    return Sum("tokens", (Term(kept), Term(added)))


def _readout(sizes: MixerSizes) -> Sum:
    nodes = (
        _data(f"tokens{2 * sizes.depth}", "tk"),
        Node("v", ("k",), array="readout"),
        Node("ones", ("t",), Role.CONSTANT, r"\mathbf{1}"),
    )
    read = Diagram("read", _legs(sizes, "tk"), nodes, ())
    return Sum("y", (Term(read), Term(Diagram("constant", (), (Node("constant", ()),), ()))))


def _data(source: str, indices: str) -> Node:
    return Node("X", tuple(indices), Role.DATA, r"\mathbf{X}", array=source)


def _legs(sizes: MixerSizes, names: str) -> tuple[Index, ...]:
    known = {
        "t": Index("t", sizes.num_tokens, "T", IndexKind.SEQUENCE),
        "k": Index("k", sizes.width, "F", IndexKind.FEATURE),
        "h": Index("h", sizes.token_hidden, "D", IndexKind.FEATURE),
        "g": Index("g", sizes.channel_hidden, "G", IndexKind.FEATURE),
    }
    return tuple(known[name] for name in names)


# --- MLP-Mixers with a power as activation: polynomials that are measured exactly -----------------


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
        degree = 1
        for _ in range(2 * self.sizes.depth):
            degree = self.activation.degree * (degree + 1) + 1
        return degree + 1

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
        """Bound by degree, in as many variables as the embedding keeps of each side."""
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
