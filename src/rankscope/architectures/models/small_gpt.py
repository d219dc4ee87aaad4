"""GPT-2 of any size, of plain linear maps, and its public weights under our names.

Radford et al. (2019), "Language Models are Unsupervised Multitask Learners". Public files store
linear maps as (inputs, outputs); here they are `nn.Linear`, as everything that reads modules
expects, so that `from_gpt2` transposes them.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rankscope.errors import SizeError


class CausalAttention(nn.Module):
    """Every token mixes the values of itself and those before it, in several heads."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.joined = nn.Linear(width, 3 * width)  # queries, keys, values
        self.out = nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        parts = self.joined(inputs).unflatten(-1, (3, self.num_heads, -1)).transpose(1, 3)
        queries, keys, values = parts.unbind(2)
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        outputs: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return outputs


class Block(nn.Module):
    """Attention, then two maps with a GELU between them, each added to its input."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CausalAttention(width, num_heads)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        attended = inputs + self.attention(self.norm1(inputs))
        hidden = nn.functional.gelu(self.widen(self.norm2(attended)), approximate="tanh")
        outputs: Tensor = attended + self.narrow(hidden)
        return outputs


class SmallGPT(nn.Module):
    """A decoder of tokens; the last map has the weight of the embedding, which counts once.

    Args:
        vocabulary: number of tokens.
        num_positions: tokens that fit into one sequence.
        width: of the residual stream.
        num_layers: number of blocks.
        num_heads: of each attention; must divide the width.

    Example:
        >>> model = SmallGPT(65, num_positions=32, width=24, num_layers=2, num_heads=3)
        >>> model(torch.zeros(1, 5, dtype=torch.long)).shape
        torch.Size([1, 5, 65])

    Raises:
        SizeError: if the heads do not share the width evenly.
    """

    places: Tensor  # the numbers of all positions

    def __init__(
        self, vocabulary: int, *, num_positions: int, width: int, num_layers: int, num_heads: int
    ) -> None:
        super().__init__()
        if num_heads < 1 or width % num_heads:
            raise SizeError(f"SmallGPT: {num_heads} heads cannot share a width of {width} evenly.")
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(num_positions, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads) for _ in range(num_layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("places", torch.arange(num_positions), persistent=False)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Numbers (batch, tokens) to logits (batch, tokens, vocabulary) of the next one each."""
        places = self.places[: tokens.shape[1]]
        states = self.blocks(self.tokens(tokens) + self.positions(places))
        logits: Tensor = self.head(self.norm(states))
        return logits


# Theirs and ours; # stands for the number of a block.
_NAMES = (
    ("wte.", "tokens."),
    ("wpe.", "positions."),
    ("ln_f.", "norm."),
    ("h.#.ln_1.", "blocks.#.norm1."),
    ("h.#.ln_2.", "blocks.#.norm2."),
    ("h.#.attn.c_attn.", "blocks.#.attention.joined."),
    ("h.#.attn.c_proj.", "blocks.#.attention.out."),
    ("h.#.mlp.c_fc.", "blocks.#.widen."),
    ("h.#.mlp.c_proj.", "blocks.#.narrow."),
    ("lm_head.", "head."),
)
_MAP = re.compile(r"\.c_(attn|proj|fc)\.weight$")  # stored as (inputs, outputs)
# Tables of which positions may see which: in old files, and not learned.
_MASKS = re.compile(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)")


def from_gpt2(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a GPT-2 file under the names of `SmallGPT`; other names stay as they are.

    Example:
        >>> [
        ...     (name, *weight.shape)
        ...     for name, weight in from_gpt2(
        ...         {"transformer.h.0.attn.c_attn.weight": torch.zeros(8, 24)}
        ...     ).items()
        ... ]
        [('blocks.0.attention.joined.weight', 24, 8)]
    """
    converted = {}
    for name, tensor in tensors.items():
        if not _MASKS.fullmatch(name):
            ours = _renamed(name.removeprefix("transformer."), _NAMES)
            converted[ours] = tensor.T.contiguous() if _MAP.search(name) else tensor
    return converted


def to_gpt2(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a `SmallGPT` under the names of GPT-2's files; the tied head is left out.

    Example:
        >>> model = SmallGPT(11, num_positions=9, width=12, num_layers=1, num_heads=3)
        >>> to_gpt2(model.state_dict())["h.0.attn.c_attn.weight"].shape
        torch.Size([12, 36])
    """
    converted = {}
    for name, tensor in tensors.items():
        if name != "head.weight":
            theirs = _renamed(name, tuple((ours, theirs) for theirs, ours in _NAMES))
            converted[theirs] = tensor.T.contiguous() if _MAP.search(theirs) else tensor
    return converted


def _renamed(name: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for old, new in pairs:
        pattern = re.escape(old).replace(r"\#", r"(\d+)")
        if re.match(pattern, name):
            return re.sub(f"^{pattern}", new.replace("#", r"\1"), name)
    return name
