"""BERT's encoder as sentence embeddings use it, and its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rankscope.errors import MissingExtraError, ModelFileError, SizeError

# --- A BERT-style encoder under the names of Hugging Face, whose weights fit unchanged ------------


PADDING = 0  # the token that fills short sentences, and that nothing attends to


@dataclass(frozen=True)
class EncoderSizes:
    """Sizes of an encoder, with the values of BERT-base.

    Args:
        vocabulary: number of tokens.
        width: of every state.
        num_layers: number of blocks.
        num_heads: of each attention; must divide the width.
        inner_width: between the two linear maps that follow the attention.
        num_positions: tokens that fit into one sentence.

    Raises:
        SizeError: if the heads do not share the width evenly.
    """

    vocabulary: int = 30522
    width: int = 768
    num_layers: int = 12
    num_heads: int = 12
    inner_width: int = 3072
    num_positions: int = 512

    def __post_init__(self) -> None:
        if self.num_heads < 1 or self.width % self.num_heads:
            raise SizeError(
                f"EncoderSizes: {self.num_heads} heads cannot share a width of {self.width} evenly."
            )


MINILM = EncoderSizes(width=384, num_layers=6, inner_width=1536)


class Embeddings(nn.Module):
    """Token, position and segment embeddings (always the first segment)."""

    places: Tensor  # the numbers of all positions

    def __init__(self, sizes: EncoderSizes) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(sizes.vocabulary, sizes.width, padding_idx=PADDING)
        self.position_embeddings = nn.Embedding(sizes.num_positions, sizes.width)
        self.token_type_embeddings = nn.Embedding(2, sizes.width)
        self.LayerNorm = _norm(sizes)
        self.register_buffer("places", torch.arange(sizes.num_positions), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) to (batch, tokens, width)."""
        places = self.position_embeddings(self.places[: tokens.shape[1]])
        first = self.token_type_embeddings(torch.zeros_like(tokens))
        states: Tensor = self.LayerNorm(self.word_embeddings(tokens) + places + first)
        return states


class SelfAttention(nn.Module):
    """Every token mixes the values of all tokens that are not padding, in several heads."""

    def __init__(self, sizes: EncoderSizes) -> None:
        super().__init__()
        self.num_heads = sizes.num_heads
        self.query = nn.Linear(sizes.width, sizes.width)
        self.key = nn.Linear(sizes.width, sizes.width)
        self.value = nn.Linear(sizes.width, sizes.width)

    def forward(self, states: Tensor, is_token: Tensor) -> Tensor:
        """(batch, tokens, width) and booleans (batch, tokens) to (batch, tokens, width)."""
        queries, keys, values = (
            part(states).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=is_token[:, None, None, :]
        )
        return mixed.transpose(1, 2).flatten(2)


class AddedMap(nn.Module):
    """A linear map, added to what was there before, and normalized."""

    def __init__(self, inputs: int, sizes: EncoderSizes) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, sizes.width)
        self.LayerNorm = _norm(sizes)

    def forward(self, inputs: Tensor, before: Tensor) -> Tensor:
        """(batch, tokens, inputs) and (batch, tokens, width) to the latter's shape."""
        outputs: Tensor = self.LayerNorm(self.dense(inputs) + before)
        return outputs


class Layer(nn.Module):
    """Attention, then two maps with a GELU between them, each added to its input."""

    def __init__(self, sizes: EncoderSizes) -> None:
        super().__init__()
        self.attention = nn.ModuleDict()
        self.attention["self"] = SelfAttention(sizes)
        self.attention["output"] = AddedMap(sizes.width, sizes)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(sizes.width, sizes.inner_width)})
        self.output = AddedMap(sizes.inner_width, sizes)

    def forward(self, states: Tensor, is_token: Tensor) -> Tensor:
        """(batch, tokens, width) and booleans (batch, tokens) to (batch, tokens, width)."""
        attended = self.attention["output"](self.attention["self"](states, is_token), states)
        hidden = nn.functional.gelu(self.intermediate["dense"](attended))
        outputs: Tensor = self.output(hidden, attended)
        return outputs


class Encoder(nn.Module):
    """Tokens to states, one for each; `pool` gives the first token's, as BERT was trained with.

    Example:
        >>> with torch.device("meta"):
        ...     model = Encoder(MINILM)
        >>> sum(weight.numel() for weight in model.parameters())
        22713216
    """

    def __init__(self, sizes: EncoderSizes) -> None:
        super().__init__()
        self.embeddings = Embeddings(sizes)
        layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.num_layers))
        self.encoder = nn.ModuleDict({"layer": layers})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(sizes.width, sizes.width)})

    def forward(self, tokens: Tensor) -> Tensor:
        """Numbers (batch, tokens), 0 for padding, to states (batch, tokens, width)."""
        is_token = tokens != PADDING
        states: Tensor = self.embeddings(tokens)
        for layer in self.encoder.get_submodule("layer").children():
            states = layer(states, is_token)
        return states

    def pool(self, states: Tensor) -> Tensor:
        """(batch, tokens, width) to (batch, width) by the first token; not used by MiniLM."""
        pooled: Tensor = self.pooler["dense"](states[:, 0]).tanh()
        return pooled


def mean_of_tokens(states: Tensor, tokens: Tensor) -> Tensor:
    """Sentence vectors (batch, width): the mean state of the tokens that are not padding."""
    weights = (tokens != PADDING).to(states.dtype)[..., None]
    return (states * weights).sum(1) / weights.sum(1)


def _norm(sizes: EncoderSizes) -> nn.LayerNorm:
    return nn.LayerNorm(sizes.width, eps=1e-12)


# --- Sentences as numbers of word pieces, by the public tokenizer file of an encoder --------------


class WordPieces:
    """A `tokenizer.json` as Hugging Face writes it.

    Args:
        path: of the file.
        max_tokens: longer sentences are cut off; sentence-transformers cuts MiniLM's at 256.

    Raises:
        MissingExtraError: if the package `tokenizers` is not installed.
        ModelFileError: if the file is missing or is no tokenizer.
    """

    def __init__(self, path: Path, *, max_tokens: int = 256) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError(
                what="Reading sentences as word pieces", package="tokenizers", extra="text"
            ) from error
        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelFileError(
                f"WordPieces: cannot read {str(path)!r}: {error.strerror}; it is published beside "
                "the weights."
            ) from error
        # The package raises nothing more specific for a file it cannot understand.
        except Exception as error:
            raise ModelFileError(f"WordPieces: {str(path)!r} is no tokenizer: {error}.") from error
        self._tokenizer.enable_truncation(max_tokens)
        self._tokenizer.enable_padding(pad_id=PADDING)

    def __call__(self, sentences: Sequence[str]) -> Tensor:
        """Numbers (sentences, tokens of the longest), with padding behind shorter ones."""
        return torch.tensor([row.ids for row in self._tokenizer.encode_batch(list(sentences))])
