"""Language, translation and pixel models with any form of attention, to be trained."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto

import torch
from torch import Tensor, nn

from rankscope.errors import SizeError
from rankscope.factorize.attention import (
    CPAttention,
    FactorizedMultiheadAttention,
    SoftmaxFreeAttention,
)
from rankscope.factorize.projected_attention import (
    AttentionOptions,
    ProjectedAttention,
    fresh_projections,
)
from rankscope.factorize.tunable_attention import DenseCore, TunableAttention

# --- Which attention a transformer is built of, as plain data -------------------------------------


_BATCH_FIRST = AttentionOptions(batch_first=True)


class AttentionForm(ABC):
    """A kind of attention with its own sizes; subclasses are frozen dataclasses."""

    @abstractmethod
    def build(self, width: int) -> ProjectedAttention:
        """A fresh layer from vectors of a width to the same, batches first."""

    @property
    @abstractmethod
    def num_heads(self) -> int:
        """H, the number of heads; of a tunable core, those that it starts as."""

    @property
    @abstractmethod
    def features(self) -> int:
        """D, of each head."""

    @property
    def num_channels(self) -> int:
        """R = D H: channels of the projected queries, keys and values."""
        return self.num_heads * self.features

    @property
    @abstractmethod
    def name(self) -> str:
        """Letters, digits and hyphens."""


@dataclass(frozen=True)
class MultiHead(AttentionForm):
    """Heads of a softmax each; their sizes need not add up to the width."""

    heads: int
    head_size: int

    def build(self, width: int) -> ProjectedAttention:
        projections = fresh_projections(width, self.num_channels)
        return FactorizedMultiheadAttention(projections, self.heads, _BATCH_FIRST)

    @property
    def num_heads(self) -> int:
        return self.heads

    @property
    def features(self) -> int:
        return self.head_size

    @property
    def name(self) -> str:
        return "multi-head"


@dataclass(frozen=True)
class SoftmaxFree(MultiHead):
    """The same heads without a softmax: scores are averaged over the keys in sight."""

    def build(self, width: int) -> ProjectedAttention:
        projections = fresh_projections(width, self.num_channels)
        return SoftmaxFreeAttention(projections, self.heads, _BATCH_FIRST)

    @property
    def name(self) -> str:
        return "softmax-free"


@dataclass(frozen=True)
class TunableCore(MultiHead):
    """A free matrix in place of heads, which starts as these heads.

    Args:
        heads: H.
        head_size: D.
        max_entries: see `TunableAttention`.
    """

    max_entries: int | None = None

    def build(self, width: int) -> ProjectedAttention:
        core = DenseCore.of_heads(self.heads, self.head_size)
        projections = fresh_projections(width, self.num_channels)
        return TunableAttention(
            projections,
            core,
            scale=self.head_size**-0.5,
            options=_BATCH_FIRST,
            max_entries=self.max_entries,
        )

    @property
    def name(self) -> str:
        return "tunable-core"


@dataclass(frozen=True)
class CPForm(AttentionForm):
    """Every channel a head of its own: R = D H for as many weights as heads, or R = H for 1 / D."""

    heads: int

    def build(self, width: int) -> ProjectedAttention:
        return CPAttention(fresh_projections(width, self.heads), self.heads, _BATCH_FIRST)

    @property
    def num_heads(self) -> int:
        return self.heads

    @property
    def features(self) -> int:
        return 1

    @property
    def name(self) -> str:
        return f"cp-{self.heads}"


# --- The sizes of a transformer -------------------------------------------------------------------


@dataclass(frozen=True)
class TransformerShape:
    """Depth, width and attention of a transformer.

    Args:
        depth: number of blocks; of an encoder and a decoder, in each.
        width: of the residual stream.
        attention: of every block.
        num_positions: tokens that fit into one sequence.
        embedding_rank: tokens and positions are vectors of this size, times a matrix to the width;
            None for vectors of the width itself.
        expansion: hidden width of the feed-forward parts over the width.

    Raises:
        SizeError: if a size is not positive, or the rank exceeds the width.
    """

    depth: int
    width: int
    attention: AttentionForm
    num_positions: int
    embedding_rank: int | None = None
    expansion: int = 4

    def __post_init__(self) -> None:
        for name in ("depth", "width", "num_positions", "expansion"):
            if getattr(self, name) < 1:
                raise SizeError(
                    f"TransformerShape: {name} must be at least 1, got {getattr(self, name)}."
                )
        if self.attention.num_channels < 1:
            raise SizeError(
                "TransformerShape: attention needs at least 1 channel, got "
                f"{self.attention.num_channels}."
            )
        if self.embedding_rank is not None and not 1 <= self.embedding_rank <= self.width:
            raise SizeError(
                f"TransformerShape: the embedding rank must lie in 1..{self.width}, the width; got "
                f"{self.embedding_rank}."
            )

    @property
    def squares(self) -> int:
        """Weights of the matrices of all blocks without cross-attention: 12 L d² if R = d."""
        attention = 4 * self.width * self.attention.num_channels
        return self.depth * (attention + 2 * self.expansion * self.width**2)


# --- The blocks of a transformer: attention and a feed-forward part, each added to its input ------


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


# --- A causal language model of any attention: tokens in, how likely each comes next out ----------


class LanguageModel(nn.Module):
    """Every token sees itself and those before it.

    Args:
        vocabulary: number of tokens.
        shape: depth, width, attention, positions, embedding rank.

    Example:
        >>> import torch
        >>> from rankscope.networks.sequence import CPForm
        >>> shape = TransformerShape(2, 8, CPForm(4), num_positions=6)
        >>> LanguageModel(5, shape)(torch.zeros(1, 3, dtype=torch.long)).shape
        torch.Size([1, 3, 5])
    """

    mask: Tensor

    def __init__(self, vocabulary: int, shape: TransformerShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = PlacedTokens(vocabulary, shape)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, vocabulary)
        self.register_buffer("mask", causal_mask(shape.num_positions), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Numbers (batch, tokens) to logits (batch, tokens, vocabulary) of the next one each.

        Raises:
            SizeError: if there are more tokens than positions.
        """
        length = tokens.shape[1]
        if length > self.shape.num_positions:
            raise SizeError(
                f"LanguageModel: {length} tokens do not fit into {self.shape.num_positions} "
                "positions."
            )
        states = self.embedding(tokens)
        for block in self.blocks:
            states = block(states, self.mask[:length, :length])
        logits: Tensor = self.head(self.norm(states))
        return logits


# --- A translation model of any attention: an encoder of sentences, and a decoder that reads them


PADDING = 0  # the number of the token that stands where a sentence is over


class TranslationModel(nn.Module):
    """Sentences as numbers of words; 0 fills up what is shorter than the longest.

    Args:
        source_vocabulary: words of the language that is read, with the padding.
        target_vocabulary: words of the language that is written, with the padding.
        shape: depth (of encoder and of decoder), width, attention, positions.

    Example:
        >>> from rankscope.networks.sequence import MultiHead
        >>> model = TranslationModel(7, 9, TransformerShape(1, 8, MultiHead(2, 4), num_positions=5))
        >>> model(torch.ones(2, 4, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)).shape
        torch.Size([2, 3, 9])
    """

    mask: Tensor

    def __init__(
        self, source_vocabulary: int, target_vocabulary: int, shape: TransformerShape
    ) -> None:
        super().__init__()
        self.shape = shape
        self.source = PlacedTokens(source_vocabulary, shape)
        self.target = PlacedTokens(target_vocabulary, shape)
        self.encoder = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.encoder_norm = nn.LayerNorm(shape.width)
        self.decoder = nn.ModuleList(Block(shape, has_memory=True) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, target_vocabulary)
        self.register_buffer("mask", causal_mask(shape.num_positions), persistent=False)

    def encode(self, source: Tensor) -> Tensor:
        """Numbers (batch, words) to the memory (batch, words, width)."""
        self._require_fitting(source)
        states, padding = self.source(source), source == PADDING
        for block in self.encoder:
            states = block(states, padding=padding)
        memory: Tensor = self.encoder_norm(states)
        return memory

    def decode(self, memory: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Logits (batch, words, target vocabulary) of the word after each word of the target."""
        self._require_fitting(target)
        length = target.shape[1]
        states, padding = self.target(target), source == PADDING
        for block in self.decoder:
            states = block(states, self.mask[:length, :length], padding, memory)
        logits: Tensor = self.head(self.norm(states))
        return logits

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Numbers of both sentences to logits of each next word of the target."""
        return self.decode(self.encode(source), source, target)

    @torch.no_grad()
    def translate(self, source: Tensor, *, begin: int, end: int, max_words: int) -> Tensor:
        """The most likely word again and again: (batch, at most `max_words`), padded after `end`.

        Args:
            source: numbers (batch, words).
            begin: the word that every target begins with; it is not given back.
            end: the word that ends a sentence; it is given back.
            max_words: a sentence that has not ended by then is cut.
        """
        memory = self.encode(source)
        written = source.new_full((len(source), 1), begin)
        is_over = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        for _ in range(max_words):
            best = self.decode(memory, source, written)[:, -1].argmax(-1)
            best = best.masked_fill(is_over, PADDING)
            written = torch.cat([written, best[:, None]], 1)
            is_over |= best == end
            if bool(is_over.all()):
                break
        return written[:, 1:]

    def _require_fitting(self, tokens: Tensor) -> None:
        if tokens.shape[1] > self.shape.num_positions:
            raise SizeError(
                f"TranslationModel: a sentence of {tokens.shape[1]} words does not fit into "
                f"{self.shape.num_positions} positions."
            )


# --- A causal model of images, pixel by pixel, and within a pixel red, green, blue ----------------


COLOURS = 3


class PixelInput(Enum):
    """Embedding of a pixel: by its intensities as a vector, or by learned tables.

    Attributes:
        VECTOR: its three intensities in -1..1: inputs have rank 3, whatever the width.
        TABLES: the sum of a learned vector for every intensity of every colour: any rank.
    """

    VECTOR = auto()
    TABLES = auto()


class PixelModel(nn.Module):
    """An autoregressive model of pixels: the logits of each intensity of each colour.

    Args:
        levels: intensities are 0..levels - 1.
        shape: depth, width, attention, positions (pixels of an image).
        pixels: what a pixel is to the model; as a vector, the embedding rank is 3.

    Example:
        >>> from rankscope.networks.sequence import MultiHead
        >>> shape = TransformerShape(1, 8, MultiHead(2, 4), num_positions=4, embedding_rank=3)
        >>> model = PixelModel(16, shape, PixelInput.VECTOR)
        >>> model(torch.zeros(2, 4, 3, dtype=torch.long)).shape
        torch.Size([2, 4, 3, 16])

    Raises:
        SizeError: if a pixel as a vector is given another embedding rank than 3.
    """

    mask: Tensor

    def __init__(self, levels: int, shape: TransformerShape, pixels: PixelInput) -> None:
        super().__init__()
        if pixels is PixelInput.VECTOR and (shape.embedding_rank or shape.width) != COLOURS:
            raise SizeError(
                f"PixelModel: a pixel as a vector has {COLOURS} numbers, so that the embedding "
                f"rank must be {COLOURS}, got {shape.embedding_rank}."
            )
        self.levels, self.shape, self.pixels = levels, shape, pixels
        size = shape.embedding_rank or shape.width
        if pixels is PixelInput.TABLES:
            self.tables = _tables(COLOURS, levels, size)
        self.places = Places(shape)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(shape.width)
        # What green may know of red, and blue of both.
        self.known = _tables(COLOURS - 1, levels, shape.width)
        self.heads = nn.ModuleList(nn.Linear(shape.width, levels) for _ in range(COLOURS))
        self.register_buffer("mask", causal_mask(shape.num_positions), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Intensities (batch, pixels, 3) to logits (batch, pixels, 3, levels) of the same.

        Those of a pixel depend on the pixels before it, and on the colours before each.

        Raises:
            SizeError: if there are more pixels than positions.
        """
        count = images.shape[1]
        if count > self.shape.num_positions:
            raise SizeError(
                f"PixelModel: {count} pixels do not fit into {self.shape.num_positions} positions."
            )
        # A pixel is predicted from those before it, the first one from zeros.
        before = nn.functional.pad(self._vectors(images)[:, :-1], (0, 0, 1, 0))
        states = self.places(before)
        for block in self.blocks:
            states = block(states, self.mask[:count, :count])
        return self._logits(self.norm(states), images)

    def _vectors(self, images: Tensor) -> Tensor:
        if self.pixels is PixelInput.VECTOR:
            return images.to(self.norm.weight) * (2 / max(self.levels - 1, 1)) - 1
        parts = [table(images[..., colour]) for colour, table in enumerate(self.tables)]
        return torch.stack(parts).sum(0)

    def _logits(self, states: Tensor, images: Tensor) -> Tensor:
        logits = []
        for colour, head in enumerate(self.heads):
            logits.append(head(nn.functional.gelu(states)))
            if colour < COLOURS - 1:
                states = states + self.known[colour](images[..., colour])
        return torch.stack(logits, -2)


def bits_per_dimension(model: nn.Module, images: Tensor) -> Tensor:
    """Mean bits of an intensity of images (batch, pixels, 3), given those before it."""
    logits: Tensor = model(images)
    nats = nn.functional.cross_entropy(logits.flatten(0, 2), images.flatten().long())
    return nats / math.log(2)


def _tables(count: int, levels: int, size: int) -> nn.ModuleList:
    return nn.ModuleList(small_embedding(levels, size) for _ in range(count))
