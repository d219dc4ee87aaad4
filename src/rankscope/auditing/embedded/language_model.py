"""The embedded transformer as a PyTorch module: GPT-2, with the names and layout of its files."""

import json
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rankscope.auditing.embedded import embedded_model


class TransposedLinear(nn.Module):
    """A linear map whose weight is stored as (inputs, outputs): GPT-2's `Conv1D`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, vectors: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        return vectors @ self.weight + self.bias


class Block(nn.Module):
    """Causal attention, then two maps with a GELU between them, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = nn.ModuleDict(), nn.ModuleDict()
        self.attn["c_attn"] = TransposedLinear(width, 3 * width)  # queries, keys, values
        self.attn["c_proj"] = TransposedLinear(width, width)
        self.mlp["c_fc"] = TransposedLinear(width, 4 * width)
        self.mlp["c_proj"] = TransposedLinear(4 * width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        joined = self.attn["c_attn"](self.ln_1(inputs))
        parts = joined.unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        queries, keys, values = parts.unbind(2)
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        attended = inputs + self.attn["c_proj"](mixed.transpose(1, 2).flatten(2))
        hidden = nn.functional.gelu(self.mlp["c_fc"](self.ln_2(attended)), approximate="tanh")
        outputs: Tensor = attended + self.mlp["c_proj"](hidden)
        return outputs


class LanguageModel(nn.Module):
    """Characters by number, (batch, tokens), to logits (batch, tokens, vocabulary) of the next.

    Args:
        config: the document `config.json` of a model of type gpt2.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, heads = config["n_embd"], config["n_head"]
        self.wte = nn.Embedding(config["vocab_size"], width)
        self.wpe = nn.Embedding(config["n_positions"], width)
        self.h = nn.Sequential(*(Block(width, heads) for _ in range(config["n_layer"])))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """At most `n_positions` tokens; the output map is the embedding's transpose."""
        embedded = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        logits: Tensor = self.ln_f(self.h(embedded)) @ self.wte.weight.T
        return logits


def trained_language_model() -> LanguageModel:
    """The embedded transformer, ready to use."""
    folder = embedded_model("transformer")
    model = LanguageModel(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval()
