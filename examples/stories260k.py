"""The 260,032-parameter Llama that writes stories, with its tokenizer.

Trained by A. Karpathy on TinyStories (github.com/karpathy/llama2.c).
"""

import itertools
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.networks.llama import Llama, LlamaSizes, read_llama2c

BEGIN = 1  # the token every text begins with
_FIRST_BYTE = 3  # tokens 3..258 stand for single bytes
_TOKEN = struct.Struct("<fi")


class Stories(nn.Module):
    """Tokens (batch, tokens) to the logits (batch, vocabulary) of the next one."""

    def __init__(self, llama: Llama) -> None:
        super().__init__()
        self.llama = llama

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of what comes after the last token; the begin token is put in front."""
        logits: Tensor = self.llama(nn.functional.pad(tokens, (1, 0), value=BEGIN))[:, -1]
        return logits


def trained(path: Path) -> Stories:
    """The published weights, in double precision."""
    return Stories(read_llama2c(path).double())


def untrained(sizes: LlamaSizes, *, seed: int) -> Stories:
    """The initialisation training starts from, in double precision."""
    generator = torch.Generator().manual_seed(seed)
    model = Stories(Llama(sizes)).double()
    for name, weight in model.named_parameters():
        if weight.ndim == 2:  # the norms begin as ones
            is_last = name.endswith(("out.weight", "up.weight"))
            deviation = 0.02 / (2 * sizes.num_layers) ** 0.5 if is_last else 0.02
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
