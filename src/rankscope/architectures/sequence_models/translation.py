"""A translation model of any attention: an encoder of sentences, and a decoder that reads them."""

import torch
from torch import Tensor, nn

from rankscope.architectures.sequence_models.blocks import Block, PlacedTokens, causal_mask
from rankscope.architectures.sequence_models.shape import TransformerShape
from rankscope.errors import SizeError

PADDING = 0  # the number of the token that stands where a sentence is over


class TranslationModel(nn.Module):
    """Sentences as numbers of words; 0 fills up what is shorter than the longest.

    Args:
        source_vocabulary: words of the language that is read, with the padding.
        target_vocabulary: words of the language that is written, with the padding.
        shape: depth (of encoder and of decoder), width, attention, positions.

    Example:
        >>> from rankscope.architectures.sequence_models.attention_forms import MultiHead
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
