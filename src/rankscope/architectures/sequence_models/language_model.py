"""A causal language model of any attention: tokens in, how likely each comes next out."""

from torch import Tensor, nn

from rankscope.architectures.sequence_models.blocks import Block, PlacedTokens, causal_mask
from rankscope.architectures.sequence_models.shape import TransformerShape
from rankscope.errors import SizeError


class LanguageModel(nn.Module):
    """Every token sees itself and those before it.

    Args:
        vocabulary: number of tokens.
        shape: depth, width, attention, positions, embedding rank.

    Example:
        >>> import torch
        >>> from rankscope.architectures.sequence_models.attention_forms import CPForm
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
