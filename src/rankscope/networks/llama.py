"""A Llama of any size, and the files of llama2.c that hold small ones.

Touvron et al. (2023), arXiv:2307.09288; the file format is that of github.com/karpathy/llama2.c,
version 0: seven numbers, then the weights kind by kind.
"""

import itertools
import math
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.errors import ModelFileError, SizeError

_ROTATION_BASE = 10000.0
_EPSILON = 1e-5
_HEADER = struct.Struct("<7i")
BEGIN = 1  # the token every text begins with
_FIRST_BYTE = 3  # tokens 3..258 stand for single bytes
_TOKEN = struct.Struct("<fi")


@dataclass(frozen=True)
class LlamaSizes:
    """The seven numbers of a file.

    Args:
        width: of the residual stream.
        inner_width: of the feed-forward parts.
        num_layers: number of blocks.
        num_heads: of queries.
        num_key_heads: of keys and values; every one serves as many query heads.
        vocabulary: number of tokens; the last map has the weight of the embedding.
        num_positions: tokens that fit into one sequence.

    Raises:
        SizeError: if a number is not positive, or heads do not share evenly.
    """

    width: int
    inner_width: int
    num_layers: int
    num_heads: int
    num_key_heads: int
    vocabulary: int
    num_positions: int

    def __post_init__(self) -> None:
        if min(vars(self).values()) < 1:
            raise SizeError(f"LlamaSizes: every number must be at least 1, got {self}.")
        if self.width % (2 * self.num_heads) or self.num_heads % self.num_key_heads:
            raise SizeError(
                f"LlamaSizes: {self.num_heads} heads of even size and {self.num_key_heads} heads "
                f"of keys cannot share a width of {self.width} evenly."
            )

    @property
    def head_size(self) -> int:
        """Features of each head."""
        return self.width // self.num_heads


class RotaryAttention(nn.Module):
    """Causal attention whose queries and keys are turned by angles that grow with their place."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.sizes = sizes
        keys = sizes.num_key_heads * sizes.head_size
        self.query = nn.Linear(sizes.width, sizes.width, bias=False)
        self.key = nn.Linear(sizes.width, keys, bias=False)
        self.value = nn.Linear(sizes.width, keys, bias=False)
        self.out = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        size = self.sizes.head_size
        queries, keys, values = (
            part(states).unflatten(-1, (-1, size)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        shared = self.sizes.num_heads // self.sizes.num_key_heads
        mixed = nn.functional.scaled_dot_product_attention(
            rotated(queries),
            rotated(keys).repeat_interleave(shared, 1),
            values.repeat_interleave(shared, 1),
            is_causal=True,
        )
        outputs: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return outputs


class LlamaBlock(nn.Module):
    """Attention, then a gated feed-forward part, each added to its input."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(sizes.width, eps=_EPSILON)
        self.attention = RotaryAttention(sizes)
        self.forward_norm = nn.RMSNorm(sizes.width, eps=_EPSILON)
        self.gate = nn.Linear(sizes.width, sizes.inner_width, bias=False)
        self.down = nn.Linear(sizes.inner_width, sizes.width, bias=False)
        self.up = nn.Linear(sizes.width, sizes.inner_width, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        states = states + self.attention(self.attention_norm(states))
        inner = self.forward_norm(states)
        outputs: Tensor = states + self.down(nn.functional.silu(self.gate(inner)) * self.up(inner))
        return outputs


class Llama(nn.Module):
    """Numbers (batch, tokens) to logits (batch, tokens, vocabulary) of the next one each.

    Example:
        >>> model = Llama(LlamaSizes(8, 12, 2, 4, 2, vocabulary=10, num_positions=6))
        >>> model(torch.zeros(1, 5, dtype=torch.long)).shape
        torch.Size([1, 5, 10])
    """

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = nn.Sequential(*(LlamaBlock(sizes) for _ in range(sizes.num_layers)))
        self.norm = nn.RMSNorm(sizes.width, eps=_EPSILON)

    def forward(self, tokens: Tensor) -> Tensor:
        """The last map has the weight of the embedding."""
        logits: Tensor = self.norm(self.blocks(self.tokens(tokens))) @ self.tokens.weight.T
        return logits

    @torch.no_grad()
    def write(self, count: int, length: int, *, begin: int, seed: int) -> Tensor:
        """Sequences (count, length) drawn from the model itself, each beginning with a token."""
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.full((count, 1), begin)
        while tokens.shape[1] < length:
            shares = torch.softmax(self(tokens)[:, -1], -1)
            drawn = torch.multinomial(shares, 1, generator=generator)
            tokens = torch.cat([tokens, drawn], 1)
        return tokens


def rotated(vectors: Tensor) -> Tensor:
    """Turn each pair of neighbouring features of (…, places, features) by place times a rate."""
    *_, places, size = vectors.shape
    rates = _ROTATION_BASE ** (-torch.arange(0, size, 2).to(vectors) / size)
    angles = torch.arange(places).to(vectors)[:, None] * rates
    cosines, sines = angles.cos(), angles.sin()
    even, odd = vectors[..., 0::2], vectors[..., 1::2]
    turned = torch.stack([even * cosines - odd * sines, even * sines + odd * cosines], -1)
    return turned.flatten(-2)


def read_llama2c(path: Path) -> Llama:
    """The model of a file of llama2.c, in inference mode.

    Raises:
        ModelFileError: if the file cannot be read, or does not hold the numbers that it says.
    """
    try:
        content = path.read_bytes()
        sizes = LlamaSizes(*_HEADER.unpack_from(content))
    except OSError as error:
        raise ModelFileError(f"read_llama2c: cannot read {path}: {error.strerror}.") from error
    except (struct.error, SizeError) as error:
        raise ModelFileError(f"read_llama2c: {path} is no model of llama2.c: {error}") from error
    with torch.device("meta"):
        model = Llama(sizes)
    shapes = _layout(sizes)
    wanted = sum(math.prod(shape) for shape in shapes.values())
    numbers = torch.frombuffer(bytearray(content[_HEADER.size :]), dtype=torch.float32)
    if len(numbers) < wanted:
        raise ModelFileError(
            f"read_llama2c: {path} has {len(numbers):,} weights, but {sizes} needs {wanted:,}."
        )
    # What follows are tables of sines and cosines, which can be computed.
    parts = torch.split(numbers[:wanted], [math.prod(shape) for shape in shapes.values()])
    state: dict[str, Tensor] = {}
    for (name, shape), part in zip(shapes.items(), parts, strict=True):
        whole = part.reshape(shape)
        if "*" in name:
            state |= {name.replace("*", str(layer)): whole[layer] for layer in range(len(whole))}
        else:
            state[name] = whole
    model.load_state_dict(state, assign=True)
    return model.eval()


def _layout(sizes: LlamaSizes) -> dict[str, tuple[int, ...]]:
    """Names of our weights, `*` for all layers at once, in the order of the file."""
    layers, width, inner = sizes.num_layers, sizes.width, sizes.inner_width
    keys = sizes.num_key_heads * sizes.head_size
    return {
        "tokens.weight": (sizes.vocabulary, width),
        "blocks.*.attention_norm.weight": (layers, width),
        "blocks.*.attention.query.weight": (layers, width, width),
        "blocks.*.attention.key.weight": (layers, keys, width),
        "blocks.*.attention.value.weight": (layers, keys, width),
        "blocks.*.attention.out.weight": (layers, width, width),
        "blocks.*.forward_norm.weight": (layers, width),
        "blocks.*.gate.weight": (layers, inner, width),
        "blocks.*.down.weight": (layers, width, inner),
        "blocks.*.up.weight": (layers, inner, width),
        "norm.weight": (width,),
    }


@dataclass(frozen=True)
class Tokenizer:
    """Pieces of text with scores: neighbours are merged, the best score first."""

    pieces: tuple[bytes, ...]
    scores: tuple[float, ...]

    @classmethod
    def read(cls, path: Path) -> "Tokenizer":
        """From a llama2.c tokenizer file."""
        content, start = path.read_bytes(), 4
        pieces, scores = [], []
        while start < len(content):
            score, size = _TOKEN.unpack_from(content, start)
            start += _TOKEN.size
            pieces.append(content[start : start + size])
            scores.append(score)
            start += size
        return cls(tuple(pieces), tuple(scores))

    def encode(self, text: str) -> list[int]:
        """Token numbers of a text, with a space put in front."""
        numbers = {piece: number for number, piece in enumerate(self.pieces)}
        tokens: list[int] = []
        for character in f" {text}":
            piece = character.encode()
            whole = numbers.get(piece)
            tokens += [byte + _FIRST_BYTE for byte in piece] if whole is None else [whole]
        while True:
            merged = [
                numbers.get(self.pieces[first] + self.pieces[second], -1)
                for first, second in itertools.pairwise(tokens)
            ]
            best = max(merged, default=-1, key=lambda n: self.scores[n] if n >= 0 else -1e30)
            if best < 0:
                return tokens
            place = merged.index(best)
            tokens[place : place + 2] = [best]

    def decode(self, tokens: list[int]) -> str:
        """The text, without the space in front."""
        pieces = [self.pieces[token] for token in tokens]
        for place, token in enumerate(tokens):
            if _FIRST_BYTE <= token < _FIRST_BYTE + 256:
                pieces[place] = bytes([token - _FIRST_BYTE])
        return b"".join(pieces).decode(errors="replace").removeprefix(" ")
