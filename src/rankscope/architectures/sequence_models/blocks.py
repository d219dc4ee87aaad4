"""The blocks of a transformer: attention and a feed-forward part, each added to its input."""

import torch
from torch import Tensor, nn

from rankscope.architectures.sequence_models.shape import TransformerShape

_STANDARD_DEVIATION = 0.02  # of embeddings


class FeedForward(nn.Module):
    """Two linear maps with a GELU between them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)

    def forward(self, states: Tensor) -> Tensor:
        """(…, width) to the same."""
        outputs: Tensor = self.narrow(nn.functional.gelu(self.widen(states)))
        return outputs


class Block(nn.Module):
    """Self-attention, attention to a memory if there is one, feed-forward; norms come first."""

    def __init__(self, shape: TransformerShape, *, has_memory: bool = False) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attention = shape.attention.build(shape.width)
        if has_memory:
            self.memory_norm = nn.LayerNorm(shape.width)
            self.memory_attention = shape.attention.build(shape.width)
        self.forward_norm = nn.LayerNorm(shape.width)
        self.feed_forward = FeedForward(shape.width, shape.expansion * shape.width)

    def forward(
        self,
        states: Tensor,
        mask: Tensor | None = None,
        padding: Tensor | None = None,
        memory: Tensor | None = None,
    ) -> Tensor:
        """(batch, tokens, width) to the same.

        Args:
            states: the residual stream.
            mask: (tokens, tokens), True where a query must not look.
            padding: (batch, keys), True where there is no token; of the memory if there is one.
            memory: (batch, keys, width).
        """
        own = None if memory is not None else padding
        inner = self.attention_norm(states)
        mixed, _ = self.attention(inner, inner, inner, own, need_weights=False, attn_mask=mask)
        states = states + mixed
        if memory is not None:
            inner = self.memory_norm(states)
            mixed, _ = self.memory_attention(inner, memory, memory, padding, need_weights=False)
            states = states + mixed
        outputs: Tensor = states + self.feed_forward(self.forward_norm(states))
        return outputs


class PlacedTokens(nn.Module):
    """Vectors of tokens plus vectors of their places, both of the embedding rank, then lifted.

    So that all inputs lie in a space of the embedding rank, as the bottleneck supposes.
    """

    def __init__(self, vocabulary: int, shape: TransformerShape) -> None:
        super().__init__()
        self.tokens = small_embedding(vocabulary, shape.embedding_rank or shape.width)
        self.places = Places(shape)

    def forward(self, tokens: Tensor) -> Tensor:
        """Numbers (batch, tokens) to (batch, tokens, width)."""
        placed: Tensor = self.places(self.tokens(tokens))
        return placed


class Places(nn.Module):
    """Adds a learned vector to every place, and lifts all to the width if the rank is smaller."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        size = shape.embedding_rank or shape.width
        self.vectors = small_embedding(shape.num_positions, size)
        self.lift = (
            nn.Identity() if size == shape.width else nn.Linear(size, shape.width, bias=False)
        )

    def forward(self, vectors: Tensor) -> Tensor:
        """(batch, tokens, rank) to (batch, tokens, width)."""
        lifted: Tensor = self.lift(vectors + self.vectors.weight[: vectors.shape[1]])
        return lifted


def causal_mask(length: int) -> Tensor:
    """True where a token would look at a later one.

    Example:
        >>> causal_mask(2)
        tensor([[False,  True],
                [False, False]])
    """
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def small_embedding(count: int, size: int) -> nn.Embedding:
    """A table of vectors that begin near 0, as GPT-2's do."""
    embedding = nn.Embedding(count, size)
    nn.init.normal_(embedding.weight, std=_STANDARD_DEVIATION)
    return embedding
