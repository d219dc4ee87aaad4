"""Transformers as they are trained today, without softmax and normalization: polynomials.

A layer is multi-head attention and, if wanted, a gated feed-forward part. Options that change what
attention is made of (shared or latent keys and values, a causal mask, rotary positions) and what
stands around it (residuals, learned positions) can be combined freely. The equations below are the
definition, token by token and in any `Arithmetic`; `transformer_programs` is the fast road.
`SelfAttention` is the special case without options, under the same names of weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache

import torch
from torch import Tensor, nn

from rankscope.diagrams.network import Network
from rankscope.errors import SizeError
from rankscope.rank.measured import SplitFunction
from rankscope.rank.networks.network import (
    Arithmetic,
    Setting,
    TokenMixer,
    require_sizes,
)
from rankscope.rank.networks.self_attention import SelfAttention, normal
from rankscope.rank.partition import Partition
from rankscope.theorem import LowerBound, UpperBound

# --- Rotations by rational angles: rotary positions that are exact modulo a prime -----------------


@cache
def rational_rotation(pair: int) -> tuple[Fraction, Fraction]:
    r"""Cosine and sine of the angle that a pair of coordinates is turned by at every position.

    Pair m has the m-th prime p = a² + b² (a > b) of the form 4k + 1: the angle of (a + bi)² / p.
    Gaussian integers factor uniquely, so no product of powers of these rotations is 1.

    Example:
        >>> [f"{cosine} {sine}" for cosine, sine in map(rational_rotation, range(3))]
        ['3/5 4/5', '5/13 12/13', '15/17 8/17']
    """
    place, number = -1, 1
    while place < pair:
        number += 4
        place += all(number % factor for factor in range(2, int(number**0.5) + 1))
    small = next(
        b for b in range(1, number) if round((number - b * b) ** 0.5) ** 2 == number - b * b
    )
    large = round((number - small * small) ** 0.5)
    cosine = Fraction(large * large - small * small, number)
    return abs(cosine), Fraction(2 * large * small, number)


@cache
def rotation_entries(head_size: int, position: int) -> tuple[Fraction, ...]:
    """The block-diagonal rotation (head_size, head_size) of a position, by rows.

    Example:
        >>> [str(entry) for entry in rotation_entries(2, 2)]
        ['-7/25', '-24/25', '24/25', '-7/25']
    """
    entries = [Fraction(0)] * head_size**2
    for pair in range(head_size // 2):
        cosine, sine = rational_rotation(pair)
        real, imaginary = Fraction(1), Fraction(0)
        for _ in range(position):
            real, imaginary = real * cosine - imaginary * sine, real * sine + imaginary * cosine
        first = 2 * pair * (head_size + 1)
        entries[first], entries[first + 1] = real, -imaginary
        entries[first + head_size], entries[first + head_size + 1] = imaginary, real
    return tuple(entries)


# --- What a transformer is made of ----------------------------------------------------------------


@dataclass(frozen=True)
class TransformerShape:
    """The sizes and options of a transformer, all of them resolved.

    Args:
        depth: number of layers, L.
        width: size of a token vector, d.
        heads: heads per layer, H.
        head_size: size of a head, a.
        num_kv_heads: keys and values of their own, K; the heads of a group share one.
        latent: keys and values of all heads are read from one vector of this size; None for none.
        query_latent: queries likewise.
        is_causal: tokens attend to themselves and earlier ones only.
        has_rotary: queries and keys are turned by rational angles times their position.
        has_positions: learned vectors are added to the tokens.
        has_residual: attention and gate are added to what they read.
        gated: inner size of the gated part after attention; None for none.
        num_tokens: number of inputs, N.
        output_position: which token the output is read from.

    Raises:
        SizeError: if a size is not positive, or they contradict each other.
    """

    depth: int
    width: int
    heads: int
    head_size: int
    num_kv_heads: int
    latent: int | None
    query_latent: int | None
    is_causal: bool
    has_rotary: bool
    has_positions: bool
    has_residual: bool
    gated: int | None
    num_tokens: int
    output_position: int

    def __post_init__(self) -> None:
        who = "PolynomialTransformer"
        optional = {"latent": self.latent, "query_latent": self.query_latent, "gated": self.gated}
        require_sizes(
            who,
            depth=self.depth,
            width=self.width,
            heads=self.heads,
            head_size=self.head_size,
            num_kv_heads=self.num_kv_heads,
            num_tokens=self.num_tokens,
            **{name: size for name, size in optional.items() if size is not None},
        )
        if self.heads % self.num_kv_heads:
            raise SizeError(
                f"{who}: {self.num_kv_heads} key-value heads do not divide {self.heads} heads; "
                "every group has as many."
            )
        for name in ("latent", "query_latent"):
            size = optional[name]
            if size is not None and size > self.width:
                raise SizeError(
                    f"{who}: {name} {size} is wider than the tokens it is read from, which have "
                    f"{self.width} entries; leave it out, or use {self.width} at most."
                )
        if not 0 <= self.output_position < self.num_tokens:
            raise SizeError(
                f"{who}: the output position must lie in 0..{self.num_tokens - 1}, "
                f"got {self.output_position}."
            )
        if self.has_rotary and self.head_size % 2:
            raise SizeError(
                f"{who}: rotary positions turn pairs of coordinates, so the head size must be "
                f"even, got {self.head_size}."
            )

    @property
    def is_attention(self) -> bool:
        """Whether the layers are those of `SelfAttention`, perhaps at special weights."""
        return not (self.is_causal or self.has_rotary or self.has_residual or self.gated)

    @property
    def is_homogeneous(self) -> bool:
        """Whether all terms of the output have one degree in the inputs."""
        return not (self.has_positions or self.has_residual)

    @property
    def layer_degree(self) -> int:
        """Degree of a layer in its tokens."""
        return 6 if self.gated else 3

    @property
    def seen(self) -> tuple[int, ...]:
        """The tokens that the output may depend on."""
        return tuple(range(self.output_position + 1 if self.is_causal else self.num_tokens))

    def group(self, head: int) -> int:
        """The number of the keys and values that a head reads."""
        return head * self.num_kv_heads // self.heads


class TransformerLayer(nn.Module):
    """The weights of a layer, drawn so that outputs have about the variance of the tokens.

    `query` is (heads, head_size, source), `key` and `value` (num_kv_heads, head_size, source),
    `output` (width, heads, head_size). The source is the token, or `latent` (size, width) and
    `query_latent` times the token. `gate_left` and `gate_right` are (gated, width), `gate_output`
    (width, gated).
    """

    def __init__(self, shape: TransformerShape, generator: torch.Generator | None) -> None:
        super().__init__()
        width, heads, size = shape.width, shape.heads, shape.head_size
        sources = {}
        for name, latent in (("latent", shape.latent), ("query_latent", shape.query_latent)):
            sources[name] = width if latent is None else latent
            if latent is not None:
                setattr(self, name, nn.Parameter(normal((latent, width), width, generator)))
        read, asked = sources["latent"], sources["query_latent"]
        self.query = nn.Parameter(normal((heads, size, asked), asked, generator))
        self.key = nn.Parameter(normal((shape.num_kv_heads, size, read), read, generator))
        self.value = nn.Parameter(normal((shape.num_kv_heads, size, read), read, generator))
        summed = shape.num_tokens * size * (1 + shape.num_tokens / width)
        self.output = nn.Parameter(normal((width, heads, size), heads * size * summed, generator))
        if shape.gated is not None:
            inner = (shape.gated, width)
            self.gate_left = nn.Parameter(normal(inner, width, generator))
            self.gate_right = nn.Parameter(normal(inner, width, generator))
            self.gate_output = nn.Parameter(normal((width, shape.gated), shape.gated, generator))


# --- The equations, token by token ----------------------------------------------------------------


def attend_by(
    shape: TransformerShape,
    numbers: Arithmetic,
    weights: Mapping[str, Tensor],
    prefix: str,
    tokens: Tensor,
) -> Tensor:
    r"""What attention makes of the tokens (batch, tokens, width), without the residual.

    .. math:: y^i = \sum_h W^O_h \sum_{j} \langle R^i W^Q_h x^i, R^j W^K_{g(h)} x^j \rangle\,
              W^V_{g(h)} x^j

    over j ≤ i if it is causal; R is the identity without rotary positions.
    """
    read = _source(numbers, weights, f"{prefix}.latent", tokens)
    asked = _source(numbers, weights, f"{prefix}.query_latent", tokens)
    queries = numbers.contract("hak,btk->bhta", weights[f"{prefix}.query"], asked)
    keys, values = (
        numbers.contract("hak,btk->bhta", weights[f"{prefix}.{name}"], read)
        for name in ("key", "value")
    )
    if shape.has_rotary:
        turns = rotations(shape, numbers, tokens)
        queries, keys = (
            numbers.contract("bhta,tca->bhtc", vectors, turns) for vectors in (queries, keys)
        )
    groups = [shape.group(head) for head in range(shape.heads)]
    scores = numbers.contract("bhia,bhja->bhij", queries, keys[:, groups])
    if shape.is_causal:
        scores = scores.tril()
    mixed = numbers.contract("bhij,bhja->bhia", scores, values[:, groups])
    return numbers.contract("kha,bhia->bik", weights[f"{prefix}.output"], mixed)


def gate_by(
    numbers: Arithmetic, weights: Mapping[str, Tensor], prefix: str, tokens: Tensor
) -> Tensor:
    """W₃((W₁y) * (W₂y)) of every token, without the residual."""
    left, right = (
        numbers.contract("mk,btk->btm", weights[f"{prefix}.gate_{side}"], tokens)
        for side in ("left", "right")
    )
    product = numbers.multiply(left, right)
    return numbers.contract("km,btm->btk", weights[f"{prefix}.gate_output"], product)


def rotations(shape: TransformerShape, numbers: Arithmetic, like: Tensor) -> Tensor:
    """The rotations (tokens, head_size, head_size) of all positions."""
    size = shape.head_size
    entries = [e for place in range(shape.num_tokens) for e in rotation_entries(size, place)]
    return numbers.constants(entries, like).reshape(shape.num_tokens, size, size)


def _source(
    numbers: Arithmetic, weights: Mapping[str, Tensor], name: str, tokens: Tensor
) -> Tensor:
    if name not in weights:
        return tokens
    return numbers.contract("ck,btk->btc", weights[name], tokens)


class PolynomialTransformer(TokenMixer):
    r"""Layers of attention without softmax, with what transformers are trained with today.

    The output is coordinate 0 of the token at the output position after the last layer. See
    `TransformerShape` for the options, `attend_by` and `gate_by` for the equations; a residual is
    x + layer(x), after attention and again after the gate.

    Args:
        depth: see `TransformerShape`, also for the other arguments.
        width: size of a token vector.
        heads: heads per layer.
        head_size: size of a head; `width // heads` if None.
        num_kv_heads: keys and values of their own; `heads` if None.
        latent: size of the vector that keys and values are read from; the token itself if None.
        query_latent: size of the vector that queries are read from; the token itself if None.
        is_causal: whether a token sees itself and earlier ones only.
        has_rotary: whether queries and keys are turned by their position.
        has_positions: whether learned positions are added.
        has_residual: whether layers are added to what they read.
        gated: inner size of the gated part; none if None.
        num_tokens: number of inputs; `2 * width` if None.
        output_position: if None, the last token with a mask and token 0 without one.
        generator: where the initial weights come from.

    Example:
        >>> network = PolynomialTransformer(
        ...     depth=2,
        ...     width=4,
        ...     heads=2,
        ...     num_kv_heads=1,
        ...     is_causal=True,
        ...     has_residual=True,
        ...     gated=6,
        ... )
        >>> network(torch.ones(3, 8, 4)).shape, network.input_degree, network.output_position
        (torch.Size([3]), 36, 7)

    Raises:
        SizeError: if sizes do not fit each other.

    Reference:
        Levine et al. (2020), arXiv:2006.12467, for attention; Shazeer (2019), arXiv:1911.02150, and
        Ainslie et al. (2023), arXiv:2305.13245, for shared keys and values; DeepSeek-AI (2024),
        arXiv:2405.04434, for latent ones; Su et al. (2021), arXiv:2104.09864, for rotary positions;
        Shazeer (2020), arXiv:2002.05202, for gates.
    """

    family = "polynomial-transformer"

    def __init__(  # noqa: PLR0913 - a certificate names each of these
        self,
        *,
        depth: int,
        width: int,
        heads: int = 1,
        head_size: int | None = None,
        num_kv_heads: int | None = None,
        latent: int | None = None,
        query_latent: int | None = None,
        is_causal: bool = False,
        has_rotary: bool = False,
        has_positions: bool = False,
        has_residual: bool = False,
        gated: int | None = None,
        num_tokens: int | None = None,
        output_position: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        count = 2 * width if num_tokens is None else num_tokens
        last = count - 1 if is_causal else 0
        self.shape = shape = TransformerShape(
            depth=depth,
            width=width,
            heads=heads,
            head_size=_shared_width(width, heads) if head_size is None else head_size,
            num_kv_heads=heads if num_kv_heads is None else num_kv_heads,
            latent=latent,
            query_latent=query_latent,
            is_causal=is_causal,
            has_rotary=has_rotary,
            has_positions=has_positions,
            has_residual=has_residual,
            gated=gated,
            num_tokens=count,
            output_position=last if output_position is None else output_position,
        )
        self.num_positions, self.input_size = count, width
        self.output_position = shape.output_position
        if has_positions:
            self.positions = nn.Parameter(normal((count, width), 4, generator))
        self.layers = nn.ModuleList(TransformerLayer(shape, generator) for _ in range(depth))

    @property
    def settings(self) -> dict[str, Setting]:
        """All arguments but the generator; sizes that were left out are written down."""
        return asdict(self.shape)

    @property
    def weight_degree(self) -> int:
        """Attention multiplies three tokens and four matrices, more with latents; a gate two."""
        shape = self.shape
        degree = int(shape.has_positions)
        matrices = 4 + 2 * (shape.latent is not None) + (shape.query_latent is not None)
        for _ in range(shape.depth):
            degree = 3 * degree + matrices
            if shape.gated is not None:
                degree = 2 * degree + 3
        return degree

    @property
    def input_degree(self) -> int:
        """3^depth, 6^depth with a gate."""
        return int(self.shape.layer_degree**self.shape.depth)

    def mix(self, numbers: Arithmetic, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        shape = self.shape
        tokens = numbers.add(inputs, weights["positions"]) if shape.has_positions else inputs
        for number in range(shape.depth):
            prefix = f"layers.{number}"
            made = attend_by(shape, numbers, weights, prefix, tokens)
            tokens = numbers.add(tokens, made) if shape.has_residual else made
            if shape.gated is not None:
                made = gate_by(numbers, weights, prefix, tokens)
                tokens = numbers.add(tokens, made) if shape.has_residual else made
        return tokens

    def grade_degrees(self, partition: Partition) -> tuple[int, ...]:
        """Every second degree: tokens enter in pairs, but for the output's own factor.

        That factor is one coordinate of the output's token, and twice as many after every gate.
        """
        if not self.shape.is_homogeneous:
            return (0,)
        least = 2**self.shape.depth if self.shape.gated else 1
        first = least if self.output_position in partition.right else 0
        return tuple(range(first, self.input_degree - least + first + 1, 2))

    def upper_bound(self, partition: Partition) -> UpperBound:
        """The least of the bounds by degrees, Gram matrices, shared keys and states."""
        from rankscope.rank.networks.token_mixer_bounds import transformer_upper_bound

        self.require_covered(partition)
        return transformer_upper_bound(self.shape, partition)

    def lower_bound(self, partition: Partition) -> LowerBound | None:
        """That of attention, where keys and values are not shared and there is no mask or gate."""
        from rankscope.rank.networks.token_mixer_bounds import transformer_lower_bound

        self.require_covered(partition)
        return transformer_lower_bound(self.shape, partition)

    def grade_upper_bounds(self, partition: Partition) -> tuple[int, ...] | None:
        """The terms of the upper bound, by degree in the right side."""
        from rankscope.rank.networks.token_mixer_bounds import transformer_terms

        return transformer_terms(self.shape, partition, self.grade_degrees(partition))

    def diagram(self) -> Network:
        """One step for the attention and one for the gate of each layer, on the array `x`."""
        from rankscope.rank.networks.transformer_diagram import transformer_diagram

        return transformer_diagram(self.shape)

    def as_attention(self) -> SelfAttention:
        """The attention network whose weights `expanded_weights` makes.

        Raises:
            SizeError: if a mask, rotary positions, residuals or a gate make it another function.
        """
        shape = self.shape
        if not shape.is_attention:
            raise SizeError(
                "PolynomialTransformer: only layers without mask, rotary positions, residual and "
                f"gate are those of SelfAttention, got {shape}."
            )
        with torch.device("meta"):
            return SelfAttention(
                depth=shape.depth,
                width=shape.width,
                heads=shape.heads,
                head_size=shape.head_size,
                num_tokens=shape.num_tokens,
                output_position=shape.output_position,
                has_positions=shape.has_positions,
            )

    def program_products(self, defined: int) -> int:
        if self.shape.is_attention:
            return self.as_attention().program_products(defined)
        return defined

    def split_class(self) -> Callable[..., SplitFunction]:
        """By Gram matrices where the layers are plain attention, else by straight-line programs."""
        from rankscope.rank.networks.transformer_programs import transformer_split

        return transformer_split


def _shared_width(width: int, heads: int) -> int:
    require_sizes("PolynomialTransformer", width=width, heads=heads)
    if width % heads:
        raise SizeError(
            f"PolynomialTransformer: {heads} heads do not divide width {width}; give head_size."
        )
    return width // heads
