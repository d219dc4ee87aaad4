"""Small models as people have them on disk."""

from pathlib import Path
from typing import Any

import torch

from rankscope import extras


def save_llama(folder: Path, *, depth: int = 3) -> Path:
    """A folder as Hugging Face writes it, with weights of low rank in one layer."""
    transformers: Any = extras.transformers()

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=depth,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        weight = model.model.layers[1].mlp.up_proj.weight
        weight.copy_(torch.randn(64, 2) @ torch.randn(2, 32))
    model.save_pretrained(folder)
    return folder
