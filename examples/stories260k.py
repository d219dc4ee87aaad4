"""The 260,032-parameter Llama that writes stories, with its tokenizer.

Trained by A. Karpathy on TinyStories (github.com/karpathy/llama2.c).
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.networks.llama import BEGIN, Llama, LlamaSizes, read_llama2c
from rankscope.networks.llama import Tokenizer as Tokenizer


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


def continued(model: Stories, *, length: int) -> list[int]:
    """The story that the model tells by itself: the most likely next token, again and again."""
    written: list[int] = []
    with torch.no_grad():
        while len(written) < length:
            written.append(int(model(torch.tensor([written], dtype=torch.int64)).argmax()))
    return written
