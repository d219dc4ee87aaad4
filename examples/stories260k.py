"""The 260,032-parameter Llama that writes stories, with its tokenizer, in plain PyTorch.

Trained by A. Karpathy on TinyStories (github.com/karpathy/llama2.c): root-mean-square norms,
rotary positions, grouped-query attention, gated feed-forward blocks, output tied to the embedding.
"""

import itertools
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

BEGIN = 1  # the token every text begins with
# The weights of a block, in the order of the file.
_PARTS = (
    *("attention_norm", "query", "key", "value", "mix"),
    *("hidden_norm", "gate", "shrink", "grow"),
)
_FIRST_BYTE = 3  # tokens 3..258 stand for single bytes
_HEADER = struct.Struct("<7i")
_TOKEN = struct.Struct("<fi")


@dataclass(frozen=True)
class Sizes:
    """In the order of the file's header."""

    width: int
    hidden: int
    depth: int
    heads: int
    shared_heads: int  # of keys and values
    vocabulary: int
    tokens: int

    @property
    def head_size(self) -> int:
        """Of queries, keys and values."""
        return self.width // self.heads


class Block(nn.Module):
    """Attention, then the gated feed-forward part, each added to its input."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        shared = sizes.shared_heads * sizes.head_size
        self.attention_norm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.query = nn.Linear(sizes.width, sizes.width, bias=False)
        self.key = nn.Linear(sizes.width, shared, bias=False)
        self.value = nn.Linear(sizes.width, shared, bias=False)
        self.mix = nn.Linear(sizes.width, sizes.width, bias=False)
        self.hidden_norm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.gate = nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.shrink = nn.Linear(sizes.hidden, sizes.width, bias=False)
        self.grow = nn.Linear(sizes.width, sizes.hidden, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        normed = self.attention_norm(inputs)
        queries = _rotated(self._heads(self.query(normed)))
        keys = _rotated(self._heads(self.key(normed)))
        heads = nn.functional.scaled_dot_product_attention(
            queries, keys, self._heads(self.value(normed)), is_causal=True, enable_gqa=True
        )
        attended = inputs + self.mix(heads.transpose(1, 2).flatten(2))
        normed = self.hidden_norm(attended)
        gated = nn.functional.silu(self.gate(normed)) * self.grow(normed)
        outputs: Tensor = attended + self.shrink(gated)
        return outputs

    def _heads(self, joined: Tensor) -> Tensor:
        batch, tokens, _ = joined.shape
        return joined.reshape(batch, tokens, -1, self.sizes.head_size).transpose(1, 2)


def _rotated(heads: Tensor) -> Tensor:
    """Turn neighbouring pairs of features by an angle that grows with the position."""
    tokens, size = heads.shape[-2:]
    rates = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * rates
    cosine, sine = angles.cos().to(heads), angles.sin().to(heads)
    first, second = heads[..., ::2], heads[..., 1::2]
    turned = (first * cosine - second * sine, first * sine + second * cosine)
    return torch.stack(turned, dim=-1).flatten(-2)


class Stories(nn.Module):
    """Tokens (batch, tokens) to the logits (batch, vocabulary) of the next one."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = nn.Sequential(*(Block(sizes) for _ in range(sizes.depth)))
        self.norm = nn.RMSNorm(sizes.width, eps=1e-5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of what comes after the last token; the begin token is put in front."""
        embedded = self.embedding(nn.functional.pad(tokens, (1, 0), value=BEGIN))
        logits: Tensor = self.norm(self.blocks(embedded)[:, -1]) @ self.embedding.weight.T
        return logits


def trained(path: Path) -> Stories:
    """The published weights, in double precision."""
    content = path.read_bytes()
    sizes = Sizes(*_HEADER.unpack_from(content))
    numbers = torch.frombuffer(bytearray(content[_HEADER.size :]), dtype=torch.float32).double()
    model = Stories(sizes).double()
    # The file holds the embedding, then each kind of weight of all blocks, then the last norm.
    names = [f"blocks.{k}.{part}.weight" for part in _PARTS for k in range(sizes.depth)]
    start = 0
    with torch.no_grad():
        for name in ("embedding.weight", *names, "norm.weight"):
            weight = model.get_parameter(name)
            weight.copy_(numbers[start : start + weight.numel()].view_as(weight))
            start += weight.numel()
    return model.eval()


def untrained(sizes: Sizes, *, seed: int) -> Stories:
    """The initialisation training starts from, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    model = Stories(sizes).double()
    for name, weight in model.named_parameters():
        if weight.ndim == 2:  # the norms begin as ones
            is_last = name.endswith(("mix.weight", "grow.weight"))
            deviation = 0.02 / (2 * sizes.depth) ** 0.5 if is_last else 0.02
            nn.init.normal_(weight, std=deviation, generator=generator)
    return model.eval()


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


def continued(model: Stories, *, length: int) -> list[int]:
    """The story that the model tells by itself: the most likely next token, again and again."""
    written: list[int] = []
    with torch.no_grad():
        while len(written) < length:
            written.append(int(model(torch.tensor([written], dtype=torch.int64)).argmax()))
    return written
